"""Parsing: what counts as a call, what the user sees, and that no text can break it."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_slca.parsing import parse_turn, render_call, text_from_trajectory, trajectory_from_text
from verl_slca.trajectory import ToolCall, ToolResult, Trajectory, Turn

PING = '<tool_call>\n{"name": "ping", "arguments": {"host": "h1"}}\n</tool_call>'
PING_CALL = ToolCall("ping", {"host": "h1"})
RESPONSE = "<tool_response>\nup\n</tool_response>"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
pieces = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>", "</tool_response>", '{"name": "a"}', '"',
     "[", "{", "}", "\\", " ", "\n", "text", "1e999", "NaN"]
)  # fmt: skip


def test_blocks_of_objects_and_of_lists_give_their_calls_in_order():
    text = f'First {PING} then <tool_call>[{{"name": "a"}}, {{"name": "b", "arguments": {{"x": 1}}}}]</tool_call>.'
    turn = parse_turn(text)
    assert turn.calls == (PING_CALL, ToolCall("a", {}), ToolCall("b", {"x": 1}))
    assert (turn.opened, turn.closed, [block.error for block in turn.blocks]) == (2, 2, [None, None])
    assert turn.content == "First  then ."


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "not valid JSON"),
        ("ping", "not valid JSON"),
        ("{'name': 'ping'}", "not valid JSON"),
        ('{"name": "ping"} now', "Extra data"),
        ("[]", "the list is empty"),
        ("42", "expected a JSON object with name and arguments, got a number 42"),
        ('{"arguments": {}}', "name must be a non-empty string, got null"),
        ('{"name": ""}', "name must be a non-empty string"),
        ('{"name": 7}', "name must be a non-empty string, got a number 7"),
        ('{"name": "ping", "arguments": []}', "arguments of 'ping' must be a JSON object, got a list"),
        ('{"name": "ping", "arguments": ""}', "arguments of 'ping' must be a JSON object, got a string"),
        ('{"name": "ping", "arguments": 0}', "arguments of 'ping' must be a JSON object"),
        ('{"name": "ping", "arguments": true}', "got a boolean true"),
        ('[{"name": "ping"}, "x"]', "expected a JSON object"),
        ('{"name": "ping", "arguments": {"x": NaN}}', "NaN is not JSON"),
        ('{"name": "ping", "arguments": {"x": 1e999}}', "1e999 is out of range"),
        ('{"name": "ping", "arguments": {"x": "\\ud800"}}', "half of a surrogate pair"),
        ('{"name": "ping", "arguments": {"x": "a\nb"}}', "not valid JSON"),
        ('{"name": "ping", "arguments": {"x": ' + "[" * 70 + "]" * 70 + "}}", "nested deeper than 64"),
    ],
)
def test_a_malformed_block_says_why_and_loses_all_its_calls(body, reason):
    turn = parse_turn(f"<tool_call>{body}</tool_call>")
    assert turn.attempted
    assert turn.calls == ()
    assert reason in turn.blocks[0].error


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('{"name": "t"}', {}),
        ('{"name": "t", "arguments": null}', {}),
        ('{"name": "t", "parameters": {"a": 1}}', {"a": 1}),
        ('{"name": "t", "arguments": {}, "parameters": {"a": 1}}', {}),
        ('{"name": "t", "arguments": "{\\"a\\": 1}"}', {"a": 1}),
        ('{"id": "c1", "name": "t", "arguments": {"a": "caf\\u00e9"}}', {"a": "café"}),
        ('{"name": "t", "arguments": {"a": "<think>x</think></tool_call><tool_call>"}}',
         {"a": "<think>x</think></tool_call><tool_call>"}),
        ('{"name": "t", "arguments": {"a": 1' + "0" * 399 + "}}", {"a": 10**399}),
    ],
)  # fmt: skip
def test_arguments_are_read_as_written(body, arguments):
    turn = parse_turn(f"<tool_call>{body}</tool_call>")
    assert turn.calls == (ToolCall("t", arguments),)
    assert (turn.opened, turn.closed) == (1, 1)


def test_calls_inside_thinking_do_not_count():
    assert parse_turn(f"<think>{PING}</think>Done.").calls == ()
    assert parse_turn(f"<thinking>{PING}</think>Done.").content == "Done."
    assert parse_turn(f"<think>{PING}</think>{PING}").calls == (PING_CALL,)


def test_unclosed_thinking_swallows_the_rest():
    turn = parse_turn(f"Hm. <think> or {PING}")
    assert (turn.attempted, turn.thinking, turn.content) == (False, True, "Hm.")


def test_text_before_a_lone_end_of_thinking_is_thinking():
    turn = parse_turn(f"plan it </think>Now. {PING}")
    assert (turn.content, turn.calls) == ("Now.", (PING_CALL,))


def test_unpaired_tags_are_attempts_and_malformed_blocks():
    stray = parse_turn('{"name": "ping"}</tool_call>')
    assert (stray.opened, stray.closed, stray.attempted, len(stray.blocks)) == (0, 1, True, 1)
    unclosed = parse_turn('<tool_call>{"name": "ping"}')
    assert (unclosed.opened, unclosed.closed, unclosed.calls) == (1, 0, ())
    assert "never closed" in unclosed.blocks[0].error
    doubled = parse_turn('<tool_call><tool_call>{"name": "ping"}</tool_call>')
    assert (doubled.opened, doubled.closed, doubled.calls) == (2, 1, ())


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.builds(ToolCall, st.text(min_size=1), st.dictionaries(st.text(), json_values, max_size=3)), max_size=3)
)
def test_rendering_and_parsing_are_inverse(calls):
    assert parse_turn("\n".join(map(render_call, calls))).calls == tuple(calls)


@settings(deadline=None, max_examples=60)
@given(st.lists(pieces | st.text(max_size=5), max_size=40).map("".join))
def test_no_text_breaks_the_parser_and_flat_text_keeps_every_call_of_its_turns(text):
    turn = parse_turn(text)
    assert turn.attempted == bool(turn.blocks)
    trajectory = trajectory_from_text(text)
    assert all(turn.calls == parse_turn(turn.text).calls for turn in trajectory.turns)
    assert Trajectory.from_dict(json.loads(json.dumps(trajectory.to_dict()))) == trajectory


@pytest.mark.parametrize(
    "piece",
    [
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "<tool_call>[",
        '<tool_call>["',
        "<tool_response>",
        "[",
        '{"a":',
        '<tool_call>["</tool_call>", "',
        '"<tool_call>[","</tool_call>',
        "<tool_call><think>",
        "</tool_call><tool_response>",
        "<tool_call>" + " " * 50,
    ],
)
def test_hostile_text_ends_in_bounded_time(piece):
    text = piece * (200_000 // len(piece))
    start = time.perf_counter()
    parse_turn(text)
    trajectory_from_text(text)
    assert time.perf_counter() - start < 5.0


def test_a_huge_number_is_a_malformed_block():
    assert parse_turn('<tool_call>{"name": "t", "arguments": {"x": 1' + "0" * 4999 + "}}</tool_call>").calls == ()


def test_flat_text_is_cut_into_turns_at_its_responses():
    trajectory = trajectory_from_text(
        f"{PING}\n{PING}\n{RESPONSE}\n{RESPONSE}\n<think>ok</think>\n{PING}{RESPONSE}Both up."
    )
    assert [len(turn.calls) for turn in trajectory.turns] == [2, 1, 0]
    assert [result.content for result in trajectory.results] == ["up", "up", "up"]
    assert trajectory.results[0].name == "ping"
    assert (trajectory.stop, trajectory.answer) == ("answer", "Both up.")


@pytest.mark.parametrize(
    ("text", "stop", "turns"),
    [
        ("", "answer", 1),
        ("Hello.", "answer", 1),
        (PING, "turn_limit", 1),
        (PING + RESPONSE, "turn_limit", 1),
        (f"{PING}{RESPONSE}{PING}", "turn_limit", 2),
        (f"{PING}{RESPONSE}<tool_call>" + '{"name"', "length", 2),
        (f"{PING}{RESPONSE}<think>so it is", "length", 2),
        (f"{PING} It is up.", "turn_limit", 1),
        (f"{PING}<tool_response>\nup", "turn_limit", 1),
        (f"{PING}{RESPONSE}Up.", "answer", 2),
    ],
)
def test_how_a_flat_text_ends(text, stop, turns):
    trajectory = trajectory_from_text(text)
    assert (trajectory.stop, len(trajectory.turns)) == (stop, turns)


def test_responses_that_the_policy_wrote_itself_are_its_own_text():
    assert trajectory_from_text(f"{RESPONSE}All is fine.").results == ()
    assert trajectory_from_text(f"<think>say {RESPONSE}</think>{PING} Fine.").results == ()


def test_calls_quoted_in_a_response_are_not_the_policys():
    trajectory = trajectory_from_text(f"{PING}<tool_response>log: {PING}</tool_response>Up.")
    assert trajectory.calls == (PING_CALL,)
    assert trajectory.answer == "Up."


def test_flat_text_of_a_trajectory_reads_back():
    turns = (Turn(f"Checking. {PING}", (PING_CALL,), (ToolResult("ping", "up"),)), Turn("It is up."))
    trajectory = Trajectory(turns, "answer")
    assert trajectory_from_text(text_from_trajectory(trajectory)) == trajectory
