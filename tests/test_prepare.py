"""Bad rows are refused before training, by file, row, column, value and fix; odd but valid ones work."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from verl_slca.cli import app
from verl_slca.errors import DataError
from verl_slca.prepare import check_file, prepare_files, write_parquet

PING = {
    "type": "function",
    "function": {
        "name": "ping",
        "description": "Is a host up?",
        "parameters": {"type": "object", "properties": {"host": {"type": "string"}}, "required": ["host"]},
    },
}
SHARED = Path(os.environ.get("SLCA_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def row(**changes: Any) -> dict[str, Any]:
    truth = {
        "question_content": "Is h1 up?",
        "allowed_tools": ["ping"],
        "tool_schemas": json.dumps([PING]),
        "gold_tool_calls": json.dumps([[{"name": "ping", "arguments": {"host": "h1"}}]]),
        "subset_name": "one",
    }
    truth |= changes.pop("truth", {})
    made = {
        "prompt": [{"role": "user", "content": "Is h1 up?"}],
        "data_source": "toucan_toolcall",
        "tools": json.dumps([PING]),
        "extra_info": {"original_turn_index": 0},
        "reward_model": {"style": "rule", "ground_truth": truth},
    }
    return {**made, **changes}


def written(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in rows))
    return path


class Template:
    """The least of a tokenizer that a prompt check needs: one token per character."""

    def __init__(self, shows_tools: bool = True, chat_template: str | None = "a template") -> None:
        self.chat_template, self.shows_tools = chat_template, shows_tools

    def apply_chat_template(self, messages: Any, tools: Any = None, **_: Any) -> str:
        return json.dumps([messages, tools if self.shows_tools else None])

    def __call__(self, text: str, **_: Any) -> Any:
        return type("Encoding", (), {"input_ids": list(text)})


def schema(**parameters: Any) -> dict[str, Any]:
    tool = copy.deepcopy(PING)
    tool["function"]["parameters"] = parameters
    return tool


BAD = {
    "a missing column": ({k: v for k, v in row().items() if k != "reward_model"}, "missing column reward_model"),
    "tools that are not JSON": (row(tools="[{'name'"), "tools: not valid JSON"),
    "gold of an unknown shape": (row(truth={"gold_tool_calls": 7}), "gold_tool_calls"),
    "a gold call without a name": (row(truth={"gold_tool_calls": [[{"arguments": {}}]]}), "name must be a non-empty"),
    "a gold call of a tool that is not offered": (
        row(truth={"gold_tool_calls": [[{"name": "pong", "arguments": {}}]]}),
        "'pong' is not among the tools offered.*drop the row",
    ),
    "a schema that does not compile": (
        row(tools=json.dumps([schema(type="object", properties={"host": {"type": "strin"}})])),
        "tool 'ping': parameters.properties.host.type",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_row_is_named_with_its_file_number_and_fix(case, tmp_path):
    bad, message = BAD[case]
    path = written(tmp_path, row(), bad)
    with pytest.raises(DataError, match=f"(?s)rows.jsonl: 1 of 2 rows cannot be used:.*row 1: .*{message}"):
        check_file(path)


def test_every_bad_row_of_a_file_is_listed_not_only_the_first(tmp_path):
    path = written(tmp_path, row(tools="["), row(), row(tools="{"))
    with pytest.raises(DataError, match=r"(?s)2 of 3 rows.*row 0.*row 2"):
        check_file(path)


def test_an_empty_dataset_is_refused(tmp_path):
    with pytest.raises(DataError, match="empty"):
        check_file(written(tmp_path))


def test_a_prompt_that_is_too_long_only_with_its_tools_is_refused(tmp_path):
    path = written(tmp_path, row())
    bare = len(json.dumps([row()["prompt"], None]))
    with pytest.raises(DataError, match=rf"1 of 1 prompts are longer than {bare} tokens with their tools: row 0"):
        check_file(path, Template(), bare)
    assert len(check_file(path, Template(), 1000)) == 1


def test_a_template_that_ignores_tools_is_refused_unless_the_prompt_shows_them(tmp_path):
    with pytest.raises(DataError, match="the chat template ignores tools"):
        check_file(written(tmp_path, row()), Template(shows_tools=False))
    shown = row(prompt=[{"role": "system", "content": json.dumps(PING)}, {"role": "user", "content": "Is h1 up?"}])
    assert check_file(written(tmp_path, shown), Template(shows_tools=False))


def test_a_tokenizer_without_a_chat_template_is_refused(tmp_path):
    with pytest.raises(DataError, match="no chat template"):
        check_file(written(tmp_path, row()), Template(chat_template=None))


ODD = {
    "no tools and no gold": row(tools="[]", truth={"allowed_tools": [], "gold_tool_calls": "[]"}),
    "empty arguments": row(truth={"gold_tool_calls": [[{"name": "ping", "arguments": {}}]]}),
    "unicode": row(prompt=[{"role": "user", "content": "h1 läuft? 主机 \U0001f680"}]),
    "150 tools": row(
        tools=json.dumps([PING] + [{"name": f"tool_{i}", "parameters": {"type": "object"}} for i in range(149)])
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_an_odd_row_works(case, tmp_path):
    assert len(check_file(written(tmp_path, ODD[case]), Template(), 1_000_000)) == 1


def test_the_command_reports_a_good_file(tmp_path):
    path = tmp_path / "rows.parquet"
    write_parquet([row(), row()], path)
    result = CliRunner().invoke(app, ["prepare", str(path)])
    assert result.exit_code == 0
    assert "2 rows, 2 tools offered: good to train on" in result.output


def test_what_is_converted_is_written_under_a_parquet_name_only(tmp_path):
    path = tmp_path / "rows.parquet"
    write_parquet([row()], path)
    with pytest.raises(DataError, match=r"rl\.jsonl.*ends in \.parquet"):
        prepare_files([path], None, None, tmp_path / "rl.jsonl", "rl")
    assert not (tmp_path / "rl.jsonl").exists()


def test_a_file_that_is_no_text_is_named_with_its_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_parquet([row()], path)
    with pytest.raises(DataError, match=r"rows\.jsonl line 1: not valid JSON .*utf-8"):
        check_file(path)


@pytest.mark.skipif(not SHARED.is_dir(), reason="real Toucan rows are not here")
@pytest.mark.parametrize(("name", "rows"), [("toucan_raw", 5), ("toucan_sft_json", 3), ("toucan_rl", 4)])
def test_real_toucan_rows_of_every_shape_are_converted_and_good_to_train_on(name, rows, tmp_path):
    path = tmp_path / "rl.parquet"
    result = CliRunner().invoke(app, ["prepare", str(SHARED / "data" / f"{name}.jsonl"), "--output", str(path)])
    assert result.exit_code == 0, result.output
    assert len(check_file(path)) == rows
