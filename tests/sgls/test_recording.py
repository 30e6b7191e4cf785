"""Recordings: written from any backend or a dataset, replayed, and what is not in them."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from verl_slca import config
from verl_slca.cli import app
from verl_slca.errors import ConfigError, DataError, SimulatorFault
from verl_slca.rows import row_from_record
from verl_slca.sgls.recording import Entry, read_recording, write_recording
from verl_slca.sgls.simulator import SglsConfig, Simulator
from verl_slca.toucan import rl_records
from verl_slca.toucan_recording import recorded
from verl_slca.trajectory import ToolCall, ToolResult

TEXT = {"type": "string"}
WEATHER = {"name": "get_weather", "parameters": {"properties": {"city": TEXT, "days": {"type": "number"}}}}
NOTES = [
    {"name": "create_note", "parameters": {"properties": {"text": TEXT}}},
    {"name": "update_note", "parameters": {"properties": {"note_id": TEXT, "text": TEXT}}},
    {"name": "get_note", "parameters": {"properties": {"note_id": TEXT}}},
]


def replaying(path, *entries, backends=("replay",), **settings) -> Simulator:
    if entries:
        write_recording(path, entries)
    return Simulator(SglsConfig(backends=backends, replay=str(path), **settings))


def ask(simulator, *calls, tools=(WEATHER, *NOTES), world="w") -> tuple[ToolResult, ...]:
    return asyncio.run(simulator.episode(tools, world).respond(calls))


def weather(**arguments) -> ToolCall:
    return ToolCall("get_weather", arguments)


def test_a_recorded_call_is_answered_whatever_the_order_of_its_arguments(tmp_path):
    made = replaying(tmp_path / "r", Entry("get_weather", {"city": "Oslo", "days": 2}, "Cold."))
    assert ask(made, weather(days=2.0, city="Oslo")) == (ToolResult("get_weather", "Cold."),)
    assert made.figures.total().kinds["source/replay"] == 1


def test_a_recorded_refusal_is_one_again(tmp_path):
    made = replaying(tmp_path / "r", Entry("get_weather", {"city": "x"}, "Error: no such city", is_error=True))
    assert ask(made, weather(city="x"))[0].is_error


def test_a_miss_is_a_fault_or_the_next_backends_to_answer(tmp_path):
    entry = Entry("get_weather", {"city": "Oslo"}, "Cold.")
    made = replaying(tmp_path / "r", entry)
    with pytest.raises(SimulatorFault, match=r"simulator_replay_miss.*Bergen"):
        ask(made, weather(city="Bergen"))
    made = replaying(tmp_path / "r", entry, backends=("replay", "rules"))
    results = ask(made, weather(city="Bergen"), weather(city="Oslo"))
    assert results[0] == ask(Simulator(SglsConfig()), weather(city="Bergen"))[0]
    assert results[1].content == "Cold."
    kinds = made.figures.total().kinds
    assert (kinds["source/rules"], kinds["source/replay"], kinds["passed/simulator_replay_miss"]) == (1, 1, 1)


def test_the_most_specific_entry_answers(tmp_path):
    made = replaying(
        tmp_path / "r",
        Entry("get_weather", {}, "anywhere"),
        Entry("get_weather", {}, "in w", world="w"),
        Entry("get_weather", {}, "too late", world="w"),
        Entry("get_weather", {}, "another declaration", digest="0" * 32),
    )
    assert ask(made, weather(), world="w")[0].content == "in w"
    assert ask(made, weather(), world="v")[0].content == "anywhere"


CALLS = [
    weather(city="Oslo"),
    ToolCall("create_note", {"text": "milk"}),
    ToolCall("get_note", {"note_id": "n7"}),
    ToolCall("update_note", {"note_id": "n7", "text": "bread"}),
    ToolCall("get_note", {"note_id": "n7"}),
]


def test_what_was_recorded_from_a_backend_is_replayed_state_included(tmp_path):
    path = tmp_path / "deep" / "recording.jsonl"
    first = ask(Simulator(SglsConfig(record=str(path))), *CALLS)
    assert first[2] != first[4]
    made = replaying(path)
    assert ask(made, *CALLS) == first
    with pytest.raises(SimulatorFault, match="simulator_replay_miss"):
        ask(made, *CALLS, world="another")


def test_equal_answers_are_recorded_once_and_restarts_append(tmp_path):
    path = tmp_path / "recording.jsonl"
    simulator = Simulator(SglsConfig(record=str(path)))
    for _ in range(3):
        ask(simulator, *CALLS)
    assert len(path.read_text().splitlines()) == len(CALLS)
    ask(Simulator(SglsConfig(record=str(path))), weather(city="Rome"))
    assert len(read_recording(path)) == len(CALLS) + 1


def test_texts_of_any_kind_survive_a_recording(tmp_path):
    entry = Entry("t\u00e9l\u00e9", {"a": "\u2028\n\"'"}, 'line\nbreak \u4e2d "quoted"')
    write_recording(tmp_path / "r", [entry])
    simulator = replaying(tmp_path / "r")
    tool = {"name": entry.tool}
    assert ask(simulator, ToolCall(entry.tool, entry.arguments), tools=[tool])[0].content == entry.response
    path = tmp_path / "surrogates"
    ask(Simulator(SglsConfig(record=str(path))), weather(city="\ud800"))
    assert len(read_recording(path)) == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 2: not JSON"),
        ("[]", "line 2: a line must be a JSON object"),
        ('{"tool": "t", "arguments": {}}', "line 2: response must be a text"),
        ('{"tool": "t", "arguments": [], "response": ""}', "line 2: arguments must be an object"),
        ('{"tool": "t", "arguments": {}, "response": "", "is_error": 1}', "line 2: is_error"),
        ('{"tool": "t", "arguments": {}, "response": "", "world": 7}', "line 2: world must be a text"),
        ('{"tool": "t", "args": {}, "response": ""}', "line 2: unknown key 'args'; allowed: tool"),
    ],
)
def test_a_line_that_is_no_entry_is_named(tmp_path, line, told):
    path = tmp_path / "r.jsonl"
    path.write_text(Entry("t", {}, "").line() + "\n" + line + "\n")
    with pytest.raises(DataError, match=told) as caught:
        read_recording(path)
    assert str(path) in str(caught.value)


def test_files_that_cannot_be_used_are_named_before_training_starts(tmp_path):
    with pytest.raises(DataError, match="nowhere"):
        replaying(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="record"):
        Simulator(SglsConfig(record=str(tmp_path)))
    (tmp_path / "state.json").write_text("[]")
    for path in (tmp_path / "nowhere", tmp_path / "state.json"):
        with pytest.raises(ConfigError, match="initial_state"):
            Simulator(SglsConfig(initial_state=str(path)))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"backends": []}, "at least one"),
        ({"backends": ["rules", "rules"]}, "at most once"),
        ({"backends": ["rules", "llm"]}, "always answers"),
        ({"backends": ["replay"]}, "go together"),
        ({"replay": "r.jsonl"}, "go together"),
        ({"backends": "rules"}, "expected a list"),
        ({"backend": "rules"}, "Did you mean 'backends'"),
        ({"effects": {"t": "destroy"}}, "effects must map"),
        ({"llm": {"api_key": "x"}}, "unknown key"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, told):
    with pytest.raises(ConfigError, match=told):
        config.parse(SglsConfig, settings, "sgls")


def dialogue(*turns: tuple[str, dict, str]) -> dict:
    """A raw Toucan row: (request, arguments of get_weather, response) per user turn."""
    messages = []
    for request, arguments, response in turns:
        called = json.dumps(arguments)
        messages += [
            {"role": "user", "content": request},
            {"role": "assistant", "content": "", "function_call": {"name": "get_weather", "arguments": called}},
            {"role": "function", "name": "get_weather", "content": response},
            {"role": "assistant", "content": "There."},
        ]  # fmt: skip
    tool = {"type": "function", "function": {**WEATHER, "description": "Weather"}}
    return {"uuid": "u", "subset_name": "s", "messages": json.dumps(messages), "available_tools": json.dumps([tool])}


def test_a_datasets_own_responses_become_a_recording(tmp_path):
    two = dialogue(("Oslo?", {"city": "Oslo"}, "3"), ("Rome?", {"city": "Rome"}, "20"))
    rows = [two, dialogue(("Rome now?", {"city": "Rome"}, "21")), {"uuid": "broken"}]
    path = tmp_path / "raw.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    entries, problems = recorded(path)
    assert len(problems) == 1
    assert "row 2" in problems[0]
    assert [(entry.arguments["city"], entry.response, bool(entry.world)) for entry in entries] == [
        ("Oslo", "3", False), ("Rome", "20", True), ("Rome", "21", True),
    ]  # fmt: skip
    done = CliRunner().invoke(app, ["record", str(path), "--output", str(tmp_path / "recording")])
    assert "3 responses" in done.stdout
    assert "row 2" in done.stderr
    made = replaying(tmp_path / "recording")
    for row, city, response in ((rows[0], "Rome", "20"), (rows[1], "Rome", "21"), (rows[1], "Oslo", "3")):
        rl = row_from_record(rl_records(row, "row")[-1], "row")
        (result,) = asyncio.run(made.episode(rl.tools, rl.key).respond([weather(city=city)]))
        assert result.content == response


_SHARED = Path(os.environ.get("SLCA_SHARED", Path(__file__).parents[3] / "shared")) / "data" / "toucan_raw.jsonl"


@pytest.mark.skipif(not _SHARED.exists(), reason=f"{_SHARED} is absent; set SLCA_SHARED")
def test_real_toucan_rows_are_replayed_word_for_word(tmp_path):
    entries, problems = recorded(_SHARED)
    assert len(problems) == 1  # the row that was cut by who published it
    made, checked = replaying(tmp_path / "recording", *entries), 0
    for line in _SHARED.read_text().splitlines():
        try:
            row = row_from_record(rl_records(json.loads(line), "row")[0], "row")
        except DataError:
            continue
        for entry in entries:
            if entry.tool in [tool["function"]["name"] for tool in row.tools] and entry.world in ("", row.key):
                (result,) = asyncio.run(
                    made.episode(row.tools, row.key).respond([ToolCall(entry.tool, entry.arguments)])
                )
                checked += result.content == entry.response
    assert checked >= len(entries) - 1
