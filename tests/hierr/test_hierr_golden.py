"""The authors' functions, case by case: `expected` in reference mode, `better` in sound mode.

tests/golden/*.json say which quirks a case touches; sound values are asserted where a case touches none, and
for every field that `better` names.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from verl_slca.errors import DataError, JudgeFault
from verl_slca.hierr import RATINGS, HierrConfig, process, reference, score_text
from verl_slca.hierr.action import action_reward, verdict_in
from verl_slca.hierr.rltr import completeness_from, rltr_reward, vote_in
from verl_slca.parsing import trajectory_from_text
from verl_slca.rows import gold_from

GOLDEN = Path(__file__).parents[1] / "golden"
HIERR, TOOLPO, RLTR = (
    json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    for name in ("hierr_process", "toolpo_action", "rltr_reward")
)
PARTS = ("format", "name", "key", "value", "parallel", "process")


class Fixed:
    """A judge of one opinion that remembers what it was shown."""

    def __init__(self, rating):
        self.rating, self.reply = rating, None

    async def rate(self, question, responses, reply):
        self.reply = reply
        if self.rating == "judge_failed":
            raise JudgeFault("judge_down")
        return RATINGS[self.rating]


def cases(data):
    return [pytest.param(case, id=case["id"]) for case in data["cases"]]


def score(case, mode, rating="excellent"):
    judge = Fixed(rating)
    reward = asyncio.run(score_text(case["solution_str"], case["ground_truth"], judge, HierrConfig(mode=mode)))
    return reward, judge.reply


def tried(case, mode):
    if mode == "reference":
        gold = reference.gold_from(case["ground_truth"])
        return reference.attempts(case["solution_str"], gold.allowed_tools), gold
    gold = gold_from(case["ground_truth"], case["id"])
    return process.attempts(trajectory_from_text(case["solution_str"]), gold.allowed_tools), gold


def unreadable(case):
    """Gold that only a DataError answers soundly."""
    try:
        gold_from(case["ground_truth"], case["id"])
    except DataError:
        return True
    return False


@pytest.mark.parametrize("case", cases(HIERR))
def test_reference_mode_reproduces_the_release(case):
    expected = case["expected"]
    reward, reply = score(case, "reference")
    for part in PARTS:
        assert reward.parts.get(part, 0.0) == pytest.approx(expected[part], abs=1e-9), part
    assert reward.omitted == bool(expected["should_call_but_no_call"])
    assert (reply is not None) == expected["judge_called"]
    assert reply == expected.get("judged_reply")
    for rating, total in expected["score_when_summary"].items():
        assert score(case, "reference", rating)[0].total == pytest.approx(total, abs=1e-9), rating


@pytest.mark.parametrize("case", cases(HIERR))
def test_sound_mode_gives_the_better_values(case):
    better, expected = case.get("better", {}), case["expected"]
    if unreadable(case):
        assert case["quirk"] == "H18"
        return
    clean = not case["touches"] and "quirk" not in case
    reward, _ = score(case, "sound")
    for part in PARTS:
        if part in better or clean:
            assert reward.parts.get(part, 0.0) == pytest.approx(better.get(part, expected[part]), abs=1e-9), part
    if clean or "should_call_but_no_call" in better:
        omitted = better.get("should_call_but_no_call", expected["should_call_but_no_call"])
        assert reward.omitted == bool(omitted)
    for rating, total in expected["score_when_summary"].items():
        if clean or "score_all" in better:
            got = score(case, "sound", rating)[0].total
            assert got == pytest.approx(better.get("score_all", total), abs=1e-9), rating


@pytest.mark.parametrize("mode", ["sound", "reference"])
@pytest.mark.parametrize(
    ("body", "part", "value"),
    [
        ('{"name": "set_lamp", "arguments": {"x": 1' + "0" * 399 + "}}", "value", 0.0),
        ('{"name": "set_lamp", "arguments": {"x": 1' + "0" * 4999 + "}}", "format", 0.0),
        ("[" * 100_000, "format", 0.0),
    ],
)
def test_what_crashes_the_release_is_scored(mode, body, part, value):
    truth = {"allowed_tools": ["set_lamp"], "gold_tool_calls": [[{"name": "set_lamp", "arguments": {"x": 5}}]]}
    case = {"solution_str": f"<tool_call>{body}</tool_call>", "ground_truth": truth}
    assert score(case, mode)[0].parts[part] == value


def test_no_text_is_empty_text_and_a_gold_name_that_is_a_list_is_a_data_error():
    truth = {"allowed_tools": ["set_lamp"], "gold_tool_calls": [[{"name": "set_lamp", "arguments": {"x": 5}}]]}
    for mode in ("sound", "reference"):
        assert score({"solution_str": None, "ground_truth": truth}, mode)[0].total == -0.5
        broken = truth | {"gold_tool_calls": [[{"name": ["set_lamp"], "arguments": {"x": 5}}]]}
        with pytest.raises(DataError, match="name must be a non-empty string"):
            score({"solution_str": "", "ground_truth": broken}, mode)


@pytest.mark.parametrize("mode", ["reference", "sound"])
@pytest.mark.parametrize("case", cases(TOOLPO))
def test_toolpo_action_reward(case, mode):
    better = case.get("better", {}) if mode == "sound" else {}
    if mode == "sound" and (unreadable(case) or (case["touches"] and not better)):
        return
    reward = action_reward(*tried(case, mode), mode)
    assert reward.ratio == pytest.approx(better.get("correct_ratio", case["expected"]["correct_ratio"]), abs=1e-12)
    if not better or "correct_count" in better:
        assert reward.correct == better.get("correct_count", case["expected"]["correct_count"])


@pytest.mark.parametrize("case", TOOLPO["rsucc_parse"], ids=lambda case: case["reply"][:30])
def test_solved_verdicts(case):
    assert verdict_in(case["reply"], "reference") == case["expected"]
    assert verdict_in(case["reply"]) == case.get("better", case["expected"])


@pytest.mark.parametrize("case", cases(RLTR))
def test_rltr_reward_in_reference_mode(case):
    reward = rltr_reward(*tried(case, "reference"), case["completeness"], "reference")
    expected = case["expected"]
    assert reward.score == pytest.approx(expected["score"], abs=1e-12)
    assert reward.total == pytest.approx(expected["estimator_total"], abs=1e-12)
    assert reward.completeness == pytest.approx(expected["comp"], abs=1e-12)
    assert (reward.repeats, reward.errors) == (expected["repeat_count"], expected["error_count"])
    assert (reward.valid, reward.omitted) == (expected["format_valid"] > 0.5, bool(expected["should_call_but_no_call"]))


@pytest.mark.parametrize("case", cases(RLTR))
def test_rltr_reward_in_sound_mode(case):
    if unreadable(case):
        return
    better, expected = case.get("better", {}), case["expected"]
    reward = rltr_reward(*tried(case, "sound"), case["completeness"])
    got = {"score": reward.score, "estimator_total": reward.total, "repeat_count": reward.repeats}
    clean = not case["touches"] and "quirk" not in case
    for name, value in got.items():
        if name in better or clean:
            assert value == pytest.approx(better.get(name, expected[name]), abs=1e-12), name
    assert reward.score == reward.total


@pytest.mark.parametrize("case", RLTR["checker_parse"], ids=lambda case: case["reply"][:30])
def test_checker_votes(case):
    assert vote_in(case["reply"], "reference") == case["expected"]
    assert vote_in(case["reply"]) == case.get("better", case["expected"])


@pytest.mark.parametrize("case", RLTR["checker_mean"], ids=lambda case: str(case["replies"]))
def test_checker_means(case):
    assert completeness_from(case["replies"], "reference") == pytest.approx(case["expected"], abs=1e-12)
    if any(vote_in(reply) is not None for reply in case["replies"] if reply):
        assert completeness_from(case["replies"]) == pytest.approx(case["expected"], abs=1e-12)
    else:
        with pytest.raises(JudgeFault, match="checker_unparsable"):
            completeness_from(case["replies"])
