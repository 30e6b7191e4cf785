"""One episode, with a scripted policy and world."""

from __future__ import annotations

import pytest

from verl_slca.episode import Action, Limits, run_episode, truncated
from verl_slca.errors import PolicyServerFault, SimulatorFault
from verl_slca.parsing import render_call
from verl_slca.trajectory import ToolCall, ToolResult


def block(*hosts):
    return "\n".join(render_call(ToolCall("ping", {"host": host})) for host in hosts)


class Script:
    """A policy that says its lines; a line that is an exception is raised, None is cut off by the token limit."""

    def __init__(self, *lines, room=100):
        self.lines, self.room, self.observed = list(lines), room, []

    async def act(self):
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        finished = not line.endswith("…")
        return Action(line, finished, (0, len(line)))

    async def observe(self, results):
        self.observed.append(list(results))
        self.room -= 1
        return self.room > 0


class Echo:
    """A world that answers each call with its host."""

    def __init__(self, fault=None):
        self.fault, self.calls = fault, []

    async def respond(self, calls):
        self.calls.append(list(calls))
        if self.fault:
            raise self.fault
        return [ToolResult(call.name, call.arguments["host"]) for call in calls]


async def test_calls_are_answered_until_the_policy_answers():
    policy, world = Script(block("a", "b"), "Both up."), Echo()
    rollout = await run_episode(policy, world, Limits())
    assert (rollout.stop, rollout.answer) == ("answer", "Both up.")
    assert [result.content for result in rollout.turns[0].results] == ["a", "b"]
    assert policy.observed == [list(rollout.turns[0].results)]
    assert rollout.turns[1].span == (0, 8)


async def test_an_answer_at_once_is_one_turn():
    rollout = await run_episode(Script("Hello."), Echo(), Limits())
    assert (rollout.stop, len(rollout.turns), rollout.tool_turns) == ("answer", 1, ())


async def test_the_last_allowed_turns_call_is_not_executed():
    world = Echo()
    rollout = await run_episode(Script(block("a"), block("b"), "never said"), world, Limits(max_turns=2))
    assert (rollout.stop, len(rollout.turns), len(world.calls)) == ("turn_limit", 2, 1)
    assert rollout.turns[1].results == ()
    assert rollout.answer_turn is None


async def test_a_turn_cut_off_by_the_token_limit_ends_the_episode_unanswered():
    rollout = await run_episode(Script(block("a"), "It is…"), Echo(), Limits())
    assert (rollout.stop, rollout.answer) == ("length", "")
    rollout = await run_episode(Script(block("a") + "…"), Echo(), Limits())
    assert (rollout.stop, rollout.turns[0].results) == ("length", ())


async def test_no_room_for_the_results_ends_the_episode():
    rollout = await run_episode(Script(block("a"), "never said", room=1), Echo(), Limits())
    assert (rollout.stop, len(rollout.turns)) == ("length", 1)
    assert rollout.results[0].content == "a"


async def test_malformed_blocks_are_answered_in_their_place():
    text = f"{block('a')}<tool_call>oops</tool_call>{block('b')}"
    policy, world = Script(text, "Done."), Echo()
    rollout = await run_episode(policy, world, Limits())
    names = [(result.name, result.is_error) for result in rollout.results]
    assert names == [("ping", False), ("", True), ("ping", False)]
    assert "not valid JSON" in rollout.results[1].content
    assert len(world.calls[0]) == 2


async def test_a_turn_of_malformed_blocks_only_asks_the_world_nothing():
    world = Echo()
    rollout = await run_episode(Script("<tool_call>oops</tool_call>", "</tool_call>", "Done."), world, Limits())
    assert (world.calls, rollout.stop) == ([], "answer")
    assert [result.is_error for result in rollout.results] == [True, True]


async def test_calls_beyond_the_parallel_limit_get_one_error():
    world = Echo()
    rollout = await run_episode(Script(block("a", "b", "c", "d"), "Done."), world, Limits(max_parallel_calls=2))
    assert [result.content for result in rollout.results[:2]] == ["a", "b"]
    assert rollout.results[2].is_error
    assert "2 calls not executed, at most 2" in rollout.results[2].content
    assert len(rollout.results) == 3


async def test_the_parallel_limit_may_fall_inside_a_block_and_errors_after_it_remain():
    listed = '<tool_call>[{"name": "ping", "arguments": {"host": "b"}}, {"name": "ping", "arguments": {"host": "c"}}]'
    text = block("a") + listed + "</tool_call><tool_call>oops</tool_call>"
    rollout = await run_episode(Script(text, "Done."), Echo(), Limits(max_parallel_calls=2))
    assert [result.content for result in rollout.results[:2]] == ["a", "b"]
    assert "not valid JSON" in rollout.results[2].content
    assert "1 calls not executed" in rollout.results[3].content


async def test_long_responses_are_cut_as_configured():
    policy = Script(block("a" * 50 + "b" * 50), "Done.")
    rollout = await run_episode(policy, Echo(), Limits(max_tool_response_chars=10, truncate_side="middle"))
    assert rollout.results[0].content == "aaaaa...(truncated)...bbbbb"
    assert policy.observed[0][0].content == rollout.results[0].content


async def test_calls_in_thinking_are_not_made():
    rollout = await run_episode(Script(f"<think>{block('a')}</think>Fine."), Echo(), Limits())
    assert (rollout.stop, rollout.calls) == ("answer", ())


@pytest.mark.parametrize(
    ("policy", "world", "fault", "turns"),
    [
        (Script(PolicyServerFault("policy_server_timeout")), Echo(), "policy_server_timeout", 0),
        (Script(block("a"), PolicyServerFault("policy_server_down")), Echo(), "policy_server_down", 1),
        (Script(block("a")), Echo(SimulatorFault("simulator_timeout")), "simulator_timeout", 1),
    ],
)
async def test_a_fault_ends_the_episode_and_keeps_what_was_said(policy, world, fault, turns):
    rollout = await run_episode(policy, world, Limits())
    assert (rollout.stop, rollout.fault, len(rollout.turns)) == ("fault", fault, turns)
    assert rollout.answer_turn is None


async def test_errors_that_are_not_faults_are_not_swallowed():
    with pytest.raises(KeyError):
        await run_episode(Script(KeyError("bug")), Echo(), Limits())


async def test_a_world_that_answers_another_number_of_calls_is_a_fault():
    class Silent(Echo):
        async def respond(self, calls):
            return []

    rollout = await run_episode(Script(block("a"), "Done."), Silent(), Limits())
    assert (rollout.stop, rollout.fault) == ("fault", "simulator_miscount")


@pytest.mark.parametrize("name", ["max_turns", "max_parallel_calls", "max_tool_response_chars"])
def test_limits_are_at_least_one(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        Limits(**{name: 0})


@pytest.mark.parametrize(
    ("side", "kept"),
    [("left", "(truncated)...def"), ("right", "abc...(truncated)"), ("middle", "a...(truncated)...ef")],
)
def test_truncation_keeps_exactly_the_limit(side, kept):
    assert truncated("abcdef", 3, side) == kept
    assert truncated("abc", 3, side) == "abc"
