"""Models whose scores on Toucan rows are known, and a few rows to play them on where no file is given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.benchmarks.task import Gold, Script, Task
from harness.benchmarks.toucan import Toucan
from verl_slca.parsing import render_call
from verl_slca.rows import GoldCall
from verl_slca.trajectory import ToolCall

_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "weather-now", "description": "Weather of a city.", "parameters": _CITY}},
    {"type": "function", "function": {"name": "city-population", "description": "People.", "parameters": _CITY}},
]
_SYSTEM = "# Tools\n<tools>\n" + "\n".join(json.dumps(tool) for tool in TOOLS) + "\n</tools>"
_ROWS = 12


def make_rows(count: int) -> list[dict[str, Any]]:
    """Rows in the RL schema that ask for one call, two at once, two in turn, and none, over and over."""
    rows = []
    for i in range(count):
        city = {"city": f"City{i}"}
        weather, people = {"name": "weather-now", "arguments": city}, {"name": "city-population", "arguments": city}
        question, steps, subset = [
            (f"What is the weather in City{i}?", [[weather]], "single"),
            (f"Weather and population of City{i}?", [[weather, people]], "parallel"),
            (f"Weather of City{i}, and then its population?", [[weather], [people]], "chain"),
            (f"Say hello to City{i}.", [], "none"),
        ][i % 4]
        rows.append(make_row(question, steps, subset))
    return rows


def make_row(question: str, steps: list[list[dict[str, Any]]], subset: str) -> dict[str, Any]:
    """One row that offers `TOOLS`, shown in its prompt."""
    truth = {
        "question_content": question,
        "allowed_tools": [tool["function"]["name"] for tool in TOOLS],
        "tool_schemas": json.dumps(TOOLS),
        "gold_tool_calls": json.dumps(steps),
        "subset_name": subset,
    }
    return {
        "prompt": [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": question}],
        "data_source": "toucan_toolcall",
        "tools": json.dumps(TOOLS),
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {},
    }


def scripts(task: Task) -> Mapping[str, Script]:
    """The gold calls as text and as the server's own structures, calls to a tool that is not there, and no calls."""
    assert isinstance(task, Toucan)

    def replayed(sample: str, body: Mapping[str, Any], structured: bool) -> Mapping[str, Any]:
        row = task.rows[sample]
        since = body["messages"][len(row.prompt) :]
        done = sum(message["role"] == "assistant" for message in since)
        if done < len(row.gold.steps):
            calls = row.gold.steps[done]
            return _structured(calls, done) if structured else {"content": "\n".join(map(_hermes, calls))}
        said = [message["content"] for message in since if message["role"] == "tool"]
        return {"content": " ".join(["Hello there!", *said])}

    def wrong(sample: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        tried = any(message["role"] == "tool" for message in body["messages"])
        return {"content": "It is done." if tried else render_call(ToolCall("no_such_tool", {}))}

    return {
        "gold": lambda sample, body: replayed(sample, body, structured=False),
        "gold_structured": lambda sample, body: replayed(sample, body, structured=True),
        "wrong": wrong,
        "noop": lambda sample, body: {"content": "Hello there!"},
    }


def expected(task: Task, script: str) -> Mapping[str, Mapping[str, float]]:
    """1 throughout for the gold; 0 for calls to another tool; 1 for no calls only where none were wanted."""
    assert isinstance(task, Toucan)
    names = ("success@0.9", "tool_success@0.9", "process", "name_f1")
    right = dict.fromkeys((*names, "arg_match", "parallel"), 1.0) | {"invalid_calls": 0.0, "extra_calls": 0.0}
    nothing = dict.fromkeys(names, 0.0) | {"calls": 0.0}
    missed = {"success@0.9": 0.0, "tool_success@0.9": 0.0, "name_f1": 0.0, "invalid_calls": 1.0}
    if script == "wrong":
        return dict.fromkeys(task.rows, missed)
    if script == "noop":
        return {key: nothing if row.gold.calls else right for key, row in task.rows.items()}
    return dict.fromkeys(task.rows, right)


def _hermes(call: GoldCall) -> str:
    return render_call(ToolCall(call.name, call.arguments or {}))


def _structured(calls: tuple[GoldCall, ...], step: int) -> Mapping[str, Any]:
    functions = [{"name": call.name, "arguments": json.dumps(call.arguments or {})} for call in calls]
    entries = [{"id": f"c{step}_{i}", "type": "function", "function": each} for i, each in enumerate(functions)]
    return {"content": None, "tool_calls": entries}


def _data(folder: Path) -> Path:
    path = folder / "toucan.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in make_rows(_ROWS)), encoding="utf-8")
    return path


GOLD = Gold(scripts, expected, data=_data)
