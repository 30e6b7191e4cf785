"""Toucan rows: the shapes found in the wild convert, and what is cut or broken is named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from verl_slca.errors import DataError
from verl_slca.parsing import parse_turn
from verl_slca.rows import row_from_record
from verl_slca.toucan import convert, rl_records, sft_record

SHARED = Path(os.environ.get("SLCA_SHARED", Path(__file__).parents[2] / "shared")) / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data is not here")

TOOLS = [
    {"type": "function", "function": {"name": "tides/é-low", "parameters": {"properties": {"port": {}}}}},
    {"type": "function", "function": {"name": "tides-high", "parameters": {"type": "object"}}},
]


def call(name, **arguments):
    return {"role": "assistant", "content": "", "function_call": {"name": name, "arguments": json.dumps(arguments)}}


def result(content, name=None):
    return {"role": "function", "content": content} | ({"name": name} if name else {})


def say(content, role="assistant"):
    return {"role": role, "content": content}


def raw(*messages, **changes):
    record = {
        "uuid": "u1",
        "subset_name": "single-turn-original",
        "messages": json.dumps(messages),
        "question": "cut [",
        "available_tools": json.dumps(TOOLS),
        "target_tools": "Tides::never_called",
    }
    return record | changes


PARALLEL = [
    say("<|im_system|>tool_declare<|im_middle|>[]<|im_end|>", "system"),
    say('"When is low and high tide?"', "user"),
    say("I will look."),
    call("tides/é-low", port="Varnholt"),
    call("tides-high"),
    result("04:12"),
    result("10:30", "tides-high"),
    say("Low at 04:12, high at 10:30."),
]


def gold_of(row):
    return json.loads(row["reward_model"]["ground_truth"]["gold_tool_calls"])


def test_calls_in_a_row_are_one_step_and_results_follow_in_order():
    (row,) = rl_records(raw(*PARALLEL), "row 0")
    assert gold_of(row) == [[{"name": "tides/é-low", "arguments": {"port": "Varnholt"}},
                             {"name": "tides-high", "arguments": {}}]]  # fmt: skip
    assert row["prompt"] == [{"role": "user", "content": "When is low and high tide?"}]
    assert row["reward_model"]["ground_truth"]["subset_name"] == "tool_call"
    assert row["data_source"] == "toucan_toolcall"
    assert row_from_record(row, "row 0").template_tools is not None


def test_sft_messages_hold_hermes_blocks_in_one_assistant_turn():
    conversation = sft_record(raw(*PARALLEL), "row 0")
    roles = [message["role"] for message in conversation["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    turn = parse_turn(conversation["messages"][1]["content"])
    assert ([c.name for c in turn.calls], turn.content) == (["tides/é-low", "tides-high"], "I will look.")
    assert [m["content"] for m in conversation["messages"][2:]] == ["04:12", "10:30", "Low at 04:12, high at 10:30."]


def test_the_sft_config_writes_calls_as_python_dicts():
    content = str({"name": "tides-high", "arguments": json.dumps({"note": 'it\'s "high"\nnow'})})
    messages = [say("When?", "user"), say(content, "tool_call"), say("10:30", "tool_response"), say("At 10:30.")]
    record = {"messages": json.dumps(messages), "tools": json.dumps(TOOLS), "uuid": "u"}
    (row,) = rl_records(record, "row 0")
    assert gold_of(row) == [[{"name": "tides-high", "arguments": {"note": 'it\'s "high"\nnow'}}]]


def test_dialogues_are_decomposed_turn_by_turn():
    record = raw(*PARALLEL, say("Thanks!", "user"), say("You are welcome."))
    first, second = rl_records(record, "row 0")
    assert gold_of(second) == []
    assert second["reward_model"]["ground_truth"]["subset_name"] == "irrelevant"
    assert [m["role"] for m in second["prompt"]] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert [row["extra_info"]["original_turn_index"] for row in (first, second)] == [0, 1]


def test_a_call_after_a_remark_is_a_step_of_its_own():
    record = raw(
        say("q", "user"), call("tides-high"), result("a"), say("And"), call("tides-high"), result("b"), say("c")
    )
    assert [len(step) for step in gold_of(rl_records(record, "row 0")[0])] == [1, 1]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (raw(*PARALLEL[:-1]), "breaks off before an answer; the row was cut"),
        (raw(*PARALLEL[:-2], PARALLEL[-1]), "2 calls .* but 1 results"),
        (raw(*PARALLEL[:-3], PARALLEL[-2], PARALLEL[-1]), "the result is of 'tides-high', the call in its place is"),
        (raw(say("q", "user"), result("x"), say("a")), "a tool result without a call"),
        (raw(say("q", "user"), call("gone"), result("x"), say("a")), "calls 'gone', which is not offered"),
        (raw(messages="[{oops"), "messages: not valid JSON"),
        (raw(messages="[]"), "expected a list of messages"),
        (raw(say("q", "user"), say("a"), available_tools="[{"), "tools: not valid JSON"),
        (raw(say("a")), "a assistant message before any user message"),
        (raw(say("s", "system")), "no user message"),
        (raw(say("q", "user"), say("x", "oracle")), "unknown role 'oracle'"),
        (raw(say("q", "user"), say("{not python", "tool_call")), "neither JSON nor a Python dict"),
        (raw(say("q", "user"), say("[1]", "tool_call")), "expected a JSON object"),
        ({"uuid": "u"}, "missing column messages"),
    ],
)
def test_cut_and_broken_rows_are_named(record, message):
    with pytest.raises(DataError, match=message) as error:
        rl_records(record, "toucan.parquet row 3")
    assert str(error.value).startswith("toucan.parquet row 3: ")


def test_bad_arguments_are_named():
    broken = {"role": "assistant", "content": "", "function_call": {"name": "tides-high", "arguments": "{oops"}}
    with pytest.raises(DataError, match=r"messages\[1\]: arguments of 'tides-high' must be a JSON object"):
        rl_records(raw(say("q", "user"), broken, result("x"), say("a")), "row 0")


def test_convert_keeps_the_good_rows_and_lists_the_rest(tmp_path):
    path = tmp_path / "toucan.jsonl"
    path.write_text("\n".join(map(json.dumps, [raw(*PARALLEL), raw(*PARALLEL[:-1])])), encoding="utf-8")
    rows, problems = convert(path, "rl")
    assert len(rows) == 1
    assert problems == [f"{path} row 1: the dialogue breaks off before an answer; the row was cut, drop it"]
    assert len(convert(path, "sft")[0]) == 1


@needs_shared
@pytest.mark.parametrize(("name", "rl", "sft"), [("toucan_raw", 5, 5), ("toucan_sft_json", 3, 3), ("toucan_rl", 4, 0)])
def test_the_real_rows_convert(name, rl, sft):
    path = SHARED / f"{name}.jsonl"
    rows, problems = convert(path, "rl")
    assert len(rows) == rl
    assert [row_from_record(row, "row").prompt for row in rows]
    if name == "toucan_raw":
        assert problems == [f"{path} row 5: the dialogue breaks off before an answer; the row was cut, drop it"]
    conversations, _ = convert(path, "sft")
    assert len(conversations) == sft
    for conversation in conversations:
        assert all(b.error is None for m in conversation["messages"] for b in parse_turn(m["content"]).blocks
                   if m["role"] == "assistant")  # fmt: skip


@needs_shared
def test_the_steps_of_a_real_row():
    rows, _ = convert(SHARED / "toucan_raw.jsonl", "rl")
    assert [len(step) for step in gold_of(rows[0])] == [3, 2]
    assert rows[0]["prompt"][0]["content"].startswith("I'm planning")
