"""The LLM judges against a real HTTP server on loopback that answers from a script."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from verl_slca.disk_cache import CacheConfig
from verl_slca.errors import JudgeFault
from verl_slca.hierr.asking import LlmJudgeConfig, make_asker
from verl_slca.hierr.llm_judge import LlmJudge, rating_in
from verl_slca.hierr.solved_judge import CompletenessChecker, SolvedJudge, solved_in

sys.path.insert(0, str(Path(__file__).parents[1]))
from misbehaving_server import MisbehavingServer, hang_up, refuse, reply, trickle


def asker(server, **changes):
    settings = {"base_url": server.url, "model": "judge", "timeout": 10.0, "attempts": 2} | changes
    return make_asker(LlmJudgeConfig(**settings))


def judge(server, **changes):
    return LlmJudge(asker(server, **changes))


async def test_a_verdict_is_mapped_to_its_fifth():
    with MisbehavingServer(["Clear and complete.\nRating: good"]) as server:
        assert await judge(server).rate("Is h1 up?", ["up"], "It is up.") == 0.75
    (request,) = server.requests
    assert (request.body["temperature"], request.body["model"]) == (0.0, "judge")
    shown = request.body["messages"][-1]["content"]
    assert all(part in shown for part in ("Is h1 up?", "up", "It is up."))


async def test_an_unreadable_verdict_is_asked_for_again():
    with MisbehavingServer(["It is not good.", "Rating: not good", "Rating: poor"]) as server:
        assert await judge(server).rate("q", ["r"], "reply") == 0.25
    assert [len(request.body["messages"]) for request in server.requests] == [2, 4, 6]


async def test_a_judge_that_never_says_a_label_is_a_fault():
    with MisbehavingServer(["I cannot say."]) as server:
        with pytest.raises(JudgeFault, match="judge_unparsable"):
            await judge(server, verdicts=2).rate("q", ["r"], "reply")
        assert len(server.requests) == 2


async def test_an_answer_that_was_cut_off_is_no_verdict_and_is_shown_again_in_part():
    runaway = "Rating: very poor\n" * 1000
    with MisbehavingServer([reply(runaway, finish="length"), reply(None), "Rating: good"]) as server:
        assert await judge(server).rate("q", ["r"], "reply") == 0.75
    first, second = (one["content"] for one in server.requests[2].body["messages"] if one["role"] == "assistant")
    assert (len(first) < 2100, second) == (True, "(nothing)")
    said = "judge_unparsable: no verdict in 3 answers, last: cut off at max_tokens"
    with MisbehavingServer([reply(runaway, finish="length")]) as server, pytest.raises(JudgeFault, match=said):
        await judge(server).rate("q", ["r"], "reply")


async def test_passing_trouble_is_retried():
    with MisbehavingServer([refuse(503), "Rating: excellent"]) as server:
        assert await judge(server).rate("q", ["r"], "reply") == 1.0


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (refuse(401), "judge_refused"),
        (refuse(500), "judge_error"),
        (refuse(429), "judge_rate_limit"),
        (hang_up(), "judge_unreachable"),
        (trickle("Rating: good", pause=1.0), "judge_timeout"),
    ],
)
async def test_lasting_trouble_is_a_fault_of_its_kind_never_a_rating(trouble, kind):
    with MisbehavingServer([trouble]) as server, pytest.raises(JudgeFault) as caught:
        await judge(server, attempts=1, timeout=1.0).rate("q", ["r"], "reply")
    assert caught.value.kind == kind


async def test_long_responses_are_cut_in_the_middle():
    with MisbehavingServer(["Rating: good"]) as server:
        await judge(server, max_response_chars=10).rate("q", ["a" * 50 + "b" * 50], "reply")
    assert "aaaaa...(cut)...bbbbb" in server.requests[0].body["messages"][-1]["content"]


async def test_the_same_material_is_judged_once_and_a_fault_is_not_kept(tmp_path):
    cache = CacheConfig(str(tmp_path / "verdicts"))
    with MisbehavingServer([refuse(401), "Rating: good", "Rating: poor"]) as server:
        with pytest.raises(JudgeFault):
            await judge(server, cache=cache).rate("q", ["r"], "reply")
        group = [judge(server, cache=cache).rate("q", ["r"], "reply") for _ in range(8)]
        assert await asyncio.gather(*group) == [0.75] * 8
        assert await judge(server, cache=cache).rate("q", ["r"], "another reply") == 0.25
    assert len(server.requests) == 3


async def test_lone_surrogates_of_a_policy_are_judged_like_any_text(tmp_path):
    with MisbehavingServer(["\ud800\nRating: good"]) as server:
        judged = judge(server, cache=CacheConfig(str(tmp_path / "c")))
        assert await judged.rate("\ud800", ["\udfff"], "\ud800") == 0.75


@pytest.mark.parametrize(
    ("said", "solved"),
    [(["Verdict: Solved"], 1.0), (["Not solved."], 0.0), (["Unsure"], 0.0), (["Fine!", "Verdict: Unsolved"], 0.0)],
)
async def test_only_the_verdict_solved_is_worth_one(said, solved):
    with MisbehavingServer(said) as server:
        assert await SolvedJudge(asker(server)).solved("q", ["r"], "reply") == solved
    assert len(server.requests) == len(said)


async def test_a_verdict_that_never_comes_is_a_fault():
    with MisbehavingServer(["It solved one part; the other is unsolved."]) as server:
        with pytest.raises(JudgeFault, match="judge_unparsable"):
            await SolvedJudge(asker(server)).solved("q", ["r"], "reply")
        assert len(server.requests) == 3


async def test_completeness_is_the_mean_of_three_warm_votes(tmp_path):
    def vote(body):
        return f"Complete: {int(body['seed'] == 1)}"

    with MisbehavingServer(vote) as server:
        checker = CompletenessChecker(asker(server, cache=CacheConfig(str(tmp_path / "c"))))
        for _ in range(2):
            assert await checker.completeness("q", ["ping"], ["up"]) == pytest.approx(1 / 3)
    assert sorted(request.body["seed"] for request in server.requests) == [0, 1, 2]
    assert {request.body["temperature"] for request in server.requests} == {0.7}
    assert "[call 1] ping" in server.requests[0].body["messages"][-1]["content"]


async def test_votes_that_fail_are_left_out_and_a_fault_when_all_do():
    def vote(body):
        return "Complete: 1" if body["seed"] == 0 else refuse(401)

    with MisbehavingServer(vote) as server:
        assert await CompletenessChecker(asker(server)).completeness("q", [], []) == 1.0
    with MisbehavingServer([refuse(401)]) as server, pytest.raises(JudgeFault, match="judge_refused"):
        await CompletenessChecker(asker(server)).completeness("q", [], [])


@pytest.mark.parametrize(
    ("text", "solved"),
    [
        ("Verdict: Solved", 1.0),
        ("It is not solved.", 0.0),
        ("Dissolved.", None),
        ("<think>Solved?</think> Unsolved", 0.0),
        ("<think>Verdict: Solved", None),
        ("I am unsure.", 0.0),
        ("unsure whether it is solved", None),
        ("Solved or unsolved", None),
        ("", None),
    ],
)
def test_a_text_without_one_clear_verdict_has_none(text, solved):
    assert solved_in(text) == solved


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Rating: very poor", "very poor"),
        ("**Rating:** Excellent.", "excellent"),
        ("Rating: good\nRating: poor", "poor"),
        ("<rating> acceptable </rating>", "acceptable"),
        ("<think>Rating: good</think>Rating: poor", "poor"),
        ("<think>Rating: good", None),
        ("good", "good"),
        ("not good", None),
        ("Rating: not good", None),
        ("Rating: 4", None),
        ("The reply is good and the tool results are excellent.", None),
        ("", None),
    ],
)
def test_only_one_of_the_five_labels_is_a_verdict(text, label):
    assert rating_in(text) == label
