"""The process score, and where the two rewards go."""

from __future__ import annotations

import pytest

from verl_slca import config as settings
from verl_slca.errors import ConfigError, JudgeFault
from verl_slca.hierr import PRESETS, HierrConfig, ProcessScore, make_judge, score_rollout, success_at
from verl_slca.hierr.process import attempts, process_score
from verl_slca.hierr.rules_judge import RulesJudge
from verl_slca.parsing import parse_turn, render_call
from verl_slca.rows import Gold, GoldCall
from verl_slca.trajectory import ToolCall, ToolResult, Trajectory, Turn

WANTED = Gold("Is h1 up?", ("ping", "trace"), ((GoldCall("ping", {"host": "h1"}),),))
NOTHING = Gold("Thanks!", ("ping",))


class Judge:
    def __init__(self, rating=1.0, fault=None):
        self.rating, self.fault, self.seen = rating, fault, []

    async def rate(self, question, responses, reply):
        self.seen.append((question, list(responses), reply))
        if self.fault:
            raise JudgeFault(self.fault)
        return self.rating


def turn(*calls, text="", results=("up",)):
    written = "\n".join([text, *(render_call(ToolCall(name, arguments)) for name, arguments in calls)]).strip()
    answered = tuple(ToolResult("ping", result) for result in results) if calls or "<tool_call>" in text else ()
    return Turn(written, parse_turn(written).calls, answered)


def rollout(*turns, stop="answer"):
    return Trajectory(tuple(turns), stop)


PING = ("ping", {"host": "h1"})


async def test_tools_and_answer_earn_one_reward_each():
    judge = Judge(0.75)
    reward = await score_rollout(rollout(turn(PING), Turn("It is up.")), WANTED, judge, HierrConfig())
    assert (reward.tool, reward.summary, reward.total) == (pytest.approx(1.0), 0.75, pytest.approx(1.75))
    assert judge.seen == [("Is h1 up?", ["up"], "It is up.")]
    assert (reward.omitted, reward.judged, reward.fault) == (False, True, None)


async def test_omission_goes_to_the_summary_alone_and_overrides():
    reward = await score_rollout(rollout(Turn("It is up.")), WANTED, Judge(), HierrConfig())
    assert (reward.tool, reward.summary, reward.total, reward.omitted) == (None, -0.5, -0.5, True)
    malformed = rollout(turn(text="<tool_call>ping</tool_call>"), Turn("It is up."))
    reward = await score_rollout(malformed, WANTED, Judge(), HierrConfig(no_call_penalty=-1.0))
    assert (reward.tool, reward.summary, reward.total, reward.omitted) == (0.0, -1.0, -1.0, True)


@pytest.mark.parametrize("stop", ["length", "turn_limit"])
async def test_a_rollout_cut_off_without_a_due_call_has_the_penalty_on_the_segment_there_is(stop):
    reward = await score_rollout(Trajectory((Turn("Let me think about"),), stop), WANTED, Judge(), HierrConfig())
    assert (reward.tool, reward.summary, reward.total, reward.omitted) == (-0.5, None, -0.5, True)


async def test_a_call_of_an_unknown_tool_is_a_wrong_call_and_no_omission():
    reward = await score_rollout(rollout(turn(("pong", {})), Turn("It is up.")), WANTED, Judge(), HierrConfig())
    assert (reward.tool, reward.omitted, reward.parts["format"]) == (0.0, False, 0.0)


async def test_a_rollout_cut_off_in_its_calls_has_no_summary():
    reward = await score_rollout(rollout(turn(PING), stop="turn_limit"), WANTED, Judge(), HierrConfig())
    assert (reward.tool, reward.summary, reward.total) == (pytest.approx(1.0), None, pytest.approx(1.0))


async def test_a_correct_abstention_is_full_process_and_judged():
    judge = Judge(0.5)
    reward = await score_rollout(rollout(Turn("You are welcome.")), NOTHING, judge, HierrConfig())
    assert (reward.tool, reward.summary, reward.process, reward.total) == (None, 0.5, 1.0, 1.5)
    assert judge.seen == [("Thanks!", [], "You are welcome.")]


async def test_text_cut_off_before_it_became_an_answer_is_no_abstention():
    reward = await score_rollout(rollout(Turn("You are wel"), stop="length"), NOTHING, Judge(), HierrConfig())
    assert (reward.tool, reward.summary, reward.process, reward.total) == (0.0, None, 0.0, 0.0)


async def test_a_call_where_none_is_wanted_earns_its_format_only():
    reward = await score_rollout(rollout(turn(PING), Turn("Welcome.")), NOTHING, Judge(0.0), HierrConfig())
    assert reward.tool == pytest.approx(0.1)


@pytest.mark.parametrize("answer", ["", "  ", "<think>It is up.</think>", "<think>It is"])
async def test_an_answer_that_says_nothing_is_zero_unjudged(answer):
    judge = Judge()
    reward = await score_rollout(rollout(turn(PING), Turn(answer)), WANTED, judge, HierrConfig())
    assert (reward.summary, judge.seen) == (0.0, [])


async def test_without_any_tool_output_there_is_nothing_to_summarise():
    judge = Judge()
    silent = rollout(turn(PING, results=(" ",)), Turn("It is up."))
    assert (await score_rollout(silent, WANTED, judge, HierrConfig())).summary == 0.0
    assert judge.seen == []


async def test_short_replies_are_judged():
    reward = await score_rollout(rollout(turn(PING), Turn("Up.")), WANTED, Judge(1.0), HierrConfig())
    assert reward.summary == 1.0


async def test_the_judge_sees_earlier_turns_and_no_thinking():
    judge = Judge()
    gold = Gold(WANTED.question, WANTED.allowed_tools, WANTED.steps, context="I run h1.")
    await score_rollout(rollout(turn(PING), Turn("<think>hm</think>It is up.")), gold, judge, HierrConfig())
    assert judge.seen == [("I run h1.\nIs h1 up?", ["up"], "It is up.")]


async def test_a_failed_judge_marks_the_rollout_and_scores_nothing():
    reward = await score_rollout(rollout(turn(PING), Turn("Up.")), WANTED, Judge(fault="judge_timeout"), HierrConfig())
    assert (reward.fault, reward.summary, reward.judged) == ("judge_timeout", None, False)
    assert reward.tool == pytest.approx(1.0)


async def test_a_faulty_rollout_is_no_score():
    broken = Trajectory((turn(PING),), "fault", "simulator_timeout")
    reward = await score_rollout(broken, WANTED, Judge(), HierrConfig())
    assert (reward.fault, reward.tool, reward.summary) == ("simulator_timeout", None, None)


async def test_gold_that_needs_tools_where_there_are_none_is_marked():
    gold = Gold("Is h1 up?", (), WANTED.steps)
    assert (await score_rollout(rollout(turn(PING)), gold, Judge(), HierrConfig())).fault == "missing_allowed_tools"


async def test_every_outcome_reports_the_same_parts():
    outcomes = [
        (rollout(turn(PING), Turn("Up.")), WANTED),
        (rollout(Turn("Up.")), WANTED),
        (Trajectory((), "fault", "simulator_timeout"), WANTED),
        (rollout(turn(PING)), Gold("q", (), WANTED.steps)),
    ]
    rewards = [await score_rollout(trajectory, gold, Judge(), HierrConfig()) for trajectory, gold in outcomes]
    assert len({tuple(reward.parts) for reward in rewards}) == 1


async def test_reference_mode_judges_the_last_turn_whatever_it_is():
    judge = Judge(0.5)
    cut = rollout(turn(PING), turn(PING, results=()), stop="turn_limit")
    reward = await score_rollout(cut, WANTED, judge, HierrConfig(mode="reference"))
    assert reward.summary == 0.5
    assert judge.seen[0][2].startswith("<tool_call>")


async def test_weights_enter_the_total_and_the_process_score():
    config = HierrConfig(preset="value_heavy", w_tool=2.0, w_sum=0.5)
    wrong = rollout(turn(("ping", {"host": "h2"})), Turn("It is up."))
    reward = await score_rollout(wrong, WANTED, Judge(1.0), config)
    # 0.05 + 0.20 + 0.20 + 0 + 0.20
    assert reward.tool == pytest.approx(0.65)
    assert reward.total == pytest.approx(2 * 0.65 + 0.5)
    nothing = await score_rollout(wrong, WANTED, Judge(1.0), HierrConfig(preset="none"))
    assert nothing.tool == 0.0


def score(gold, *turns):
    return process_score(attempts(rollout(*turns), gold.allowed_tools), gold)


def test_process_parts_by_hand():
    # One of two blocks valid; P = {ping}, G = {ping}; right key, wrong value; one call in the first step.
    got = score(WANTED, turn(("ping", {"host": "h2"})), turn(text="<tool_call>{</tool_call>"))
    assert got == ProcessScore(format=0.5, name=1.0, key=1.0, value=0.0, parallel=1.0)


def test_an_invalid_block_in_the_first_step_leaves_parallel_unearned():
    assert score(WANTED, turn(PING, text="<tool_call>{</tool_call>")).parallel == 0.0
    assert score(WANTED, turn(text="Let me see."), turn(PING)).parallel == 1.0


def test_steps_are_turns_however_the_blocks_are_written():
    pair = Gold("q", ("ping",), ((GoldCall("ping", {"host": "a"}), GoldCall("ping", {"host": "b"})),))
    a, b = ("ping", {"host": "a"}), ("ping", {"host": "b"})
    assert score(pair, turn(a, b)).parallel == 1.0
    assert score(pair, turn(a), turn(b)).parallel == 0.0
    flat = Gold("q", ("ping",), pair.steps, stepped=False)
    assert score(flat, turn(a), turn(b)).parallel == 1.0
    assert score(flat, turn(a, b, a)).parallel == 0.0


def test_gold_of_names_only_measures_names_only():
    names = Gold("q", ("ping", "trace"), ((GoldCall("ping", None), GoldCall("trace", None)),), stepped=False)
    got = score(names, turn(PING))
    assert (got.name, got.key, got.value) == (pytest.approx(2 / 3), 0.5, 0.5)


def test_success_allows_for_the_rounding_of_floats():
    half = ProcessScore(1.0, 1.0, 1.0, 0.5, 1.0).total(PRESETS["default"])
    assert half < 0.9
    assert success_at(half)
    assert not success_at(0.8999)


def test_presets_sum_to_one_or_to_nothing():
    for name, weights in PRESETS.items():
        total = ProcessScore(1.0, 1.0, 1.0, 1.0, 1.0).total(weights)
        assert total == pytest.approx(0.0 if name == "none" else 1.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mode": "fast"}, "'fast' is not one of 'sound', 'reference'"),
        ({"w_sum": -1.0}, "w_sum must be a finite number >= 0"),
        ({"no_call_penalty": 0.5}, "no_call_penalty must be a finite number <= 0"),
        ({"weights": {"format": -0.1}}, "weight of format"),
        ({"llm": {"timeout": 0.0}}, "timeout must be positive"),
        ({"jugde": "llm"}, "Did you mean 'judge'"),
    ],
)
def test_wrong_settings_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        settings.parse(HierrConfig, values, "reward.hierr")


def test_settings_name_the_judge_and_explicit_weights_win():
    parsed = settings.parse(HierrConfig, {"weights": {"format": 1}, "preset": "uniform"}, "reward.hierr")
    assert parsed.process_weights.format == 1.0
    assert isinstance(make_judge(parsed), RulesJudge)
