"""Rows: every odd shape that is valid loads, and everything else says where and how to fix it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_slca.errors import DataError
from verl_slca.rows import GoldCall, gold_from, load_rows, row_from_record

SHARED = Path(os.environ.get("SLCA_SHARED", Path(__file__).parents[2] / "shared")) / "data"
PING = {"type": "function", "function": {"name": "ping", "description": "", "parameters": {"type": "object"}}}
GOLD = [[{"name": "ping", "arguments": {"host": "h1"}}]]


def record(**changes):
    truth = {"question_content": "Is h1 up?", "allowed_tools": ["ping"], "gold_tool_calls": GOLD}
    truth |= changes.pop("truth", {})
    base = {
        "prompt": [{"role": "user", "content": "Is h1 up?"}],
        "data_source": "demo",
        "tools": [PING],
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"index": 0},
    }
    return base | changes


def test_a_plain_row_loads():
    row = row_from_record(record(), "row 0")
    assert row.tools == [PING]
    assert row.gold.steps == ((GoldCall("ping", {"host": "h1"}),),)
    assert (row.gold.question, row.gold.allowed_tools, row.data_source) == ("Is h1 up?", ("ping",), "demo")
    assert row.template_tools == [PING]


def test_json_text_at_every_level_and_numpy_arrays_give_the_same_row():
    plain = row_from_record(record(), "row 0")
    truth = record()["reward_model"]["ground_truth"]
    nested = {**truth, "gold_tool_calls": json.dumps([[{"name": "ping", "arguments": json.dumps({"host": "h1"})}]])}
    text = record(
        prompt=json.dumps(record()["prompt"]),
        tools=json.dumps([json.dumps(PING)]),
        reward_model=json.dumps({"ground_truth": json.dumps(nested)}),
        extra_info=json.dumps({"index": 0}),
    )
    arrays = record(
        prompt=np.array(record()["prompt"], dtype=object),
        tools=np.array([PING], dtype=object),
        truth={"allowed_tools": np.array(["ping"]), "gold_tool_calls": np.array(GOLD, dtype=object)},
    )
    assert row_from_record(text, "row 0") == plain
    assert row_from_record(arrays, "row 0") == plain


def test_the_key_depends_on_the_content_only():
    assert row_from_record(record(), "row 0").key == row_from_record(record(extra_info=None), "row 9").key
    other = row_from_record(record(prompt=[{"role": "user", "content": "And h2?"}]), "row 0")
    assert other.key != row_from_record(record(), "row 0").key


@pytest.mark.parametrize(
    ("gold", "steps", "stepped"),
    [
        (None, [], True),
        ([], [], True),
        ("", [], True),
        ("[]", [], True),
        ([[]], [], True),
        ("ping", None, None),
        (["ping"], [[("ping", None)]], True),
        ('["ping", "ping"]', [[("ping", None), ("ping", None)]], False),
        ([{"name": "ping"}, {"name": "ping", "arguments": {"a": 1}}], [[("ping", {}), ("ping", {"a": 1})]], False),
        ({"name": "ping", "parameters": {"a": 1}}, [[("ping", {"a": 1})]], True),
        ([[{"name": "ping"}], {"name": "ping"}], [[("ping", {})], [("ping", {})]], True),
        ([["ping", {"name": "ping", "arguments": None}]], [[("ping", None), ("ping", {})]], True),
        ([{"function": {"name": "ping", "arguments": "{}"}}], [[("ping", {})]], True),
    ],
)
def test_every_shape_of_gold(gold, steps, stepped):
    if steps is None:
        with pytest.raises(DataError, match="gold_tool_calls: not valid JSON"):
            gold_from({"gold_tool_calls": gold}, "row 0")
        return
    read = gold_from({"gold_tool_calls": gold}, "row 0", strict=True)
    assert [[(call.name, call.arguments) for call in step] for step in read.steps] == steps
    assert read.stepped == stepped


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": None}, "missing column prompt; found: data_source"),
        ({"reward_model": {"style": "rule"}}, "reward_model has no ground_truth"),
        ({"reward_model": "{oops"}, "reward_model: not valid JSON"),
        ({"prompt": []}, "prompt: expected a list of messages"),
        ({"prompt": [{"content": "x"}]}, r"prompt\[0\]: expected an object with role and content"),
        ({"tools": "not json"}, "tools: not valid JSON .*: 'not json'"),
        ({"tools": '{"name": "ping"}'}, "tools: expected a list of tools"),
        ({"tools": [{"description": "x"}]}, r"tools\[0\]: expected an object with a name"),
        ({"tools": [PING, PING]}, r"tools\[1\]: 'ping' is offered twice"),
        ({"tools": [{"name": "ping", "parameters": [1]}]}, r"tools\[0\] 'ping': parameters must be an object"),
        ({"tools": []}, "'ping' has no schema in tools"),
        ({"truth": {"gold_tool_calls": "[{broken"}}, "gold_tool_calls: not valid JSON"),
        ({"truth": {"gold_tool_calls": [[{"name": ["ping"]}]]}}, "name must be a non-empty string"),
        ({"truth": {"gold_tool_calls": [[{"name": "ping", "arguments": "{x"}]]}}, "'ping' must be an object, got '{x'"),
        ({"truth": {"gold_tool_calls": [[{"name": "ping", "arguments": ["h"]}]]}}, "'ping' must be an object"),
        ({"truth": {"gold_tool_calls": [[5]]}}, "expected a tool name or an object"),
        ({"truth": {"gold_tool_calls": [[{"name": "pong"}]]}}, "'pong' is not among the tools offered .ping."),
        ({"truth": {"allowed_tools": 3}}, "allowed_tools: expected a list of names"),
    ],
)  # fmt: skip
def test_bad_rows_name_where_what_and_the_value(changes, message):
    with pytest.raises(DataError, match=message) as error:
        row_from_record(record(**changes), "data.jsonl row 7")
    assert str(error.value).startswith("data.jsonl row 7: ")


def test_odd_but_valid_rows_load():
    nothing = row_from_record(record(tools="[]", truth={"allowed_tools": [], "gold_tool_calls": None}), "row 0")
    assert (nothing.tools, nothing.gold.calls, nothing.template_tools) == ([], (), None)
    many = [{"name": f"ツール/{i}é", "inputSchema": {"type": "object"}} for i in range(150)]
    gold = [[{"name": "ツール/149é", "arguments": {}}]]
    row = row_from_record(record(tools=json.dumps(many), truth={"allowed_tools": [], "gold_tool_calls": gold}), "row 0")
    assert len(row.tools) == 150
    assert row.gold.calls == (GoldCall("ツール/149é", {}),)


def test_tools_shown_in_the_system_message_are_not_rendered_again():
    shown = [{"role": "system", "content": "Tools: " + json.dumps(PING)}, {"role": "user", "content": "Is h1 up?"}]
    assert row_from_record(record(prompt=shown), "row 0").template_tools is None


def test_earlier_turns_are_context_and_the_question_falls_back_to_the_prompt():
    prompt = [{"role": r, "content": c} for r, c in (("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "c"))]
    gold = row_from_record(record(prompt=prompt, truth={"question_content": None}), "row 0").gold
    assert (gold.context, gold.question) == ("a\nb", "c")


def test_parquet_jsonl_and_json_files_load_alike(tmp_path):
    rows = [record(), record(extra_info={"index": 1})]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    texts = [{**r, "tools": json.dumps(r["tools"]), "reward_model": json.dumps(r["reward_model"])} for r in rows]
    pq.write_table(pa.Table.from_pylist(texts), tmp_path / "a.parquet")
    loaded = [load_rows(tmp_path / name) for name in ("a.jsonl", "a.json", "a.parquet")]
    assert loaded[0] == loaded[1] == loaded[2]
    assert len(loaded[0]) == 2


def test_all_bad_rows_of_a_file_are_listed_up_to_twenty(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(json.dumps(record(tools="x")) for _ in range(25)) + "\n" + json.dumps(record()))
    with pytest.raises(DataError) as error:
        load_rows(path)
    message = str(error.value)
    assert message.startswith(f"{path}: 25 of 26 rows cannot be used:")
    assert "row 19: tools: not valid JSON" in message
    assert "row 20" not in message
    assert "... and 5 more" in message


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", "", "the dataset is empty"),
        ("a.json", "[]", "the dataset is empty"),
        ("a.json", "{}", "expected a JSON list of rows"),
        ("a.jsonl", "{}\n{oops\n", "line 2: not valid JSON"),
        ("a.jsonl", "[1]\n", "line 1: expected an object"),
        ("a.parquet", "no parquet", "not a readable parquet file"),
        ("a.csv", "x", "unknown file type '.csv'"),
    ],
)
def test_unusable_files(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        load_rows(tmp_path / name)
    with pytest.raises(DataError, match="no such file"):
        load_rows(tmp_path / "absent.jsonl")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data is not here")
def test_the_released_preview_rows_load():
    rows = load_rows(SHARED / "toucan_rl.jsonl")
    assert [len(row.gold.calls) for row in rows] == [1, 0, 0, 5]
    assert all(row.template_tools is None for row in rows)
    assert rows[3].gold.calls[0].arguments is None


SCHEMA = {"type": "object", "properties": {"host": {"type": "string"}}}
BARE = {"name": "ping", "description": "d", "parameters": SCHEMA}


@pytest.mark.parametrize(
    ("system", "shown"),
    [
        (json.dumps([BARE]), True),
        (f"<tools>\n{json.dumps({'type': 'function', 'function': BARE})}\n</tools>", True),
        (json.dumps({"tools": [BARE]}, indent=2), True),
        (json.dumps([{"name": "ping", "inputSchema": SCHEMA}]), True),
        ('Use "ping" to reach hosts, with a "host".', False),
        ('For example {"name": "ping", "arguments": {"host": "h1"}} asks for h1.', False),
        ("[ping] {host} " * 50, False),
        ("", False),
    ],
)
def test_tools_are_shown_where_their_schemas_are(system, shown):
    record = {
        "prompt": [{"role": "system", "content": system}, {"role": "user", "content": "?"}],
        "data_source": "d",
        "tools": [BARE],
        "reward_model": {"ground_truth": {}},
    }
    assert (row_from_record(record, "row 0").template_tools is None) == shown


def test_only_name_description_and_parameters_reach_the_template():
    tool = {"type": "function", "strict": True, "function": {**BARE, "response": SCHEMA, "outputSchema": SCHEMA}}
    record = {
        "prompt": "?",
        "data_source": "d",
        "tools": [tool],
        "reward_model": {"ground_truth": {}},
    }
    row = row_from_record(record, "row 0")
    assert row.template_tools == [{"type": "function", "function": BARE}]
    assert row.tools[0]["function"]["outputSchema"] == SCHEMA
