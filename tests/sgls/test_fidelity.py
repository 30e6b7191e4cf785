"""Simulated against recorded responses: what counts as a difference, and the command on real rows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from verl_slca.cli import app
from verl_slca.errors import DataError
from verl_slca.sgls.fidelity import MAX_PATHS, compared, says_error, shape
from verl_slca.sgls.recording import Entry
from verl_slca.sgls.schema import compile_tool

_SHARED = Path(os.environ.get("SLCA_SHARED", Path(__file__).parents[3] / "shared"))
OUTPUT = {"type": "object", "properties": {"temp": {"type": "number"}}, "required": ["temp"]}
WEATHER = {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}, "required": ["city"]}}
SCHEMA = compile_tool({**WEATHER, "outputSchema": OUTPUT}).output


def test_two_responses_of_one_shape_agree_whatever_they_say():
    one = compared(Entry("weather", {}, '{"temp": 3}'), '{"temp": 19.5}', False, SCHEMA)
    assert (one.schema, one.kind, one.precision, one.recall, one.types) == (True, True, 1.0, 1.0, 1.0)


def test_missing_fields_lower_recall_invented_ones_precision_and_other_types_the_types():
    one = compared(Entry("weather", {}, '{"temp": 3, "sky": "grey"}'), '{"temp": "3", "id": 1}', False, SCHEMA)
    assert (one.precision, one.recall, one.types) == (0.5, 0.5, 0.0)


def test_text_beside_json_is_another_kind():
    one = compared(Entry("weather", {}, "3 degrees"), '{"temp": 3}', False, SCHEMA)
    assert (one.kind, one.schema) == (False, False)


@pytest.mark.parametrize(("response", "ours"), [("Error: no such city", False), ('{"temp": 3}', True)])
def test_a_disagreement_on_validity_is_all_that_is_compared(response, ours):
    one = compared(Entry("weather", {}, response), "whatever", ours, SCHEMA)
    assert one.real_error is not one.our_error
    assert one.precision is None


@pytest.mark.parametrize(
    ("response", "error"),
    [
        ("Error: x", True),
        ("**Error** x", True),
        ("[Errno 2]", False),
        ('{"error": {"code": 1}}', True),
        ('{"error": null}', False),
        ('"Error executing tool"', True),
        ("An error-free day", False),
        ('["error"]', False),
        ("", False),
    ],
)
def test_a_real_response_says_that_it_is_an_error(response, error):
    assert says_error(response) is error


@given(st.text())
def test_no_response_is_too_odd_to_look_at(text):
    compared(Entry("weather", {}, text), text, says_error(text), SCHEMA)


def test_a_huge_response_is_looked_at_in_part():
    assert len(shape([{f"k{i}": i for i in range(MAX_PATHS * 2)}])) == MAX_PATHS


def run(*arguments: object) -> tuple[str, int]:
    done = CliRunner().invoke(app, ["simulate", "fidelity", *map(str, arguments)])
    if isinstance(done.exception, DataError):
        return str(done.exception), 2
    return done.output, done.exit_code


def test_the_command_reports_per_tool_and_in_total(tmp_path):
    lines = [
        {"tool": "weather", "arguments": {"city": "Oslo"}, "response": '{"temp": 3}'},
        {"tool": "weather", "arguments": {}, "response": "Error: city is missing", "is_error": True},
        {"tool": "[bold]else", "arguments": {}, "response": "{}"},
    ]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "t.json").write_text(json.dumps({"tools": [{**WEATHER, "outputSchema": OUTPUT}]}))
    where = ["--recorded", tmp_path / "r.jsonl", "--tools", tmp_path / "t.json", "--output", tmp_path / "f.json"]
    output, code = run(*where)
    assert code == 0, output
    assert "[bold]else: recorded, but not among the tools" in output
    report = json.loads((tmp_path / "f.json").read_text())
    assert report["total"] == report["tools"]["weather"]
    found = {name: report["total"][name] for name in ("calls", "real_errors", "our_errors", "agreed", "recall")}
    assert found == {"calls": 2, "real_errors": 1, "our_errors": 1, "agreed": 1.0, "recall": 1.0}


def test_a_recording_none_of_whose_tools_is_declared_is_refused(tmp_path):
    (tmp_path / "r.jsonl").write_text('{"tool": "t", "arguments": {}, "response": "x"}')
    message, code = run("--recorded", tmp_path / "r.jsonl", "--output", tmp_path / "f.json")
    assert code == 2
    assert "no call that can be compared" in message


@pytest.mark.skipif(not _SHARED.exists(), reason="the shared data are absent; set SLCA_SHARED")
def test_toucans_own_rows_are_a_recording(tmp_path):
    output, code = run("--recorded", _SHARED / "data" / "toucan_raw.jsonl", "--output", tmp_path / "f.json")
    assert code == 0, output
    total = json.loads((tmp_path / "f.json").read_text())["total"]
    assert total["calls"] > 10
    assert total["faults"] == 0
