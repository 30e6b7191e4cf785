"""How far simulated responses differ from recorded real ones: structure, validity decisions, errors, per tool.

Content is not compared: it is made up, and plausible is enough. Every recorded call is made once, in an episode of
its own.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verl_slca.errors import DataError, InfrastructureFault
from verl_slca.rows import read_records
from verl_slca.sgls.backends.infer import output_of
from verl_slca.sgls.recording import Entry, read_recording
from verl_slca.sgls.schema import compile_tool
from verl_slca.sgls.simulator import Simulator
from verl_slca.sgls.validation import SchemaLimitError
from verl_slca.toucan import dialogue_from
from verl_slca.trajectory import ToolCall

MAX_PATHS = 2000
"""Fields of one response that are compared."""


_DECORATION = " \n[{\"'*#"
_ERRORS = ("error", "failed to", "mcp error", "exception", "traceback")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One real call: the tool's declaration, and what was recorded."""

    tool: Mapping[str, Any]
    entry: Entry


@dataclass(frozen=True, slots=True)
class Comparison:
    """One recorded response beside the simulated one. Shares are in [0, 1], None where there is nothing to compare.

    Attributes:
        real_error: the real API refused the call.
        our_error: the simulator did.
        schema: the real response is valid under the output schema we answer with, declared or inferred.
        kind: both are of one JSON type, text that is no JSON being a type of its own.
        precision: share of our fields that the real response has.
        recall: share of the real response's fields that ours has.
        types: share of the fields in both that have the same type.
        size: length of ours / length of the real one, in characters.
    """

    real_error: bool
    our_error: bool
    schema: bool | None = None
    kind: bool | None = None
    precision: float | None = None
    recall: float | None = None
    types: float | None = None
    size: float | None = None


def compared(real: Entry, simulated: str, our_error: bool, schema: Any) -> Comparison:
    """The comparison of one call; structure only where neither side refused it.

    Args:
        real: what was recorded.
        simulated: what the simulator answered.
        our_error: whether it is an error.
        schema: the `CompiledSchema` that our answers follow.
    """
    real_error = real.is_error or says_error(real.response)
    if real_error or our_error:
        return Comparison(real_error, our_error)
    one, other = _value(real.response), _value(simulated)
    wanted, made = shape(one), shape(other)
    shared = wanted.keys() & made.keys()
    return Comparison(
        real_error,
        our_error,
        schema=_fits(schema, one),
        kind=_type(one) == _type(other),
        precision=len(shared) / len(made) if made else None,
        recall=len(shared) / len(wanted) if wanted else None,
        types=sum(wanted[path] == made[path] for path in shared) / len(shared) if shared else None,
        size=len(simulated) / len(real.response) if real.response else None,
    )


def shape(value: Any) -> dict[str, str]:
    """The type at every path of a JSON value, elements of a list under one path; at most `MAX_PATHS`.

    Example:
        >>> shape({"stops": [{"name": "a"}, {"name": "b", "at": 3}]})
        {'stops': 'array', 'stops[].name': 'text', 'stops[].at': 'number'}
    """
    found: dict[str, str] = {}
    waiting = [("", value)]
    while waiting and len(found) < MAX_PATHS:
        path, node = waiting.pop(0)
        if path and not path.endswith("[]"):
            found.setdefault(path, _type(node))
        if isinstance(node, dict):
            waiting += [(f"{path}.{name}" if path else name, child) for name, child in node.items()]
        elif isinstance(node, list):
            waiting += [(f"{path}[]", child) for child in node[:MAX_PATHS]]
    return found


def says_error(response: str) -> bool:
    """Whether a real response that nothing marks is an error: it begins with the word, or is an object that says so.

    Example:
        >>> says_error("Error: no such city"), says_error('{"error": "x"}'), says_error('{"error": null, "n": 1}')
        (True, True, False)
    """
    value = _value(response)
    if isinstance(value, str):
        return value.lstrip(_DECORATION).lower().startswith(_ERRORS)
    return isinstance(value, dict) and bool(value.get("error") or value.get("isError") or value.get("is_error"))


async def fidelity(recorded: Sequence[Recorded], simulator: Simulator) -> dict[str, Any]:
    """The report: ``{"total": {...}, "tools": {name: {...}}}``, each as `summary` makes it; faults are counted.

    Args:
        recorded: real calls.
        simulator: makes them again.

    Raises:
        DataError: a tool's declaration cannot be used.
    """
    by_tool: dict[str, list[Comparison | None]] = defaultdict(list)
    for call in recorded:
        tool = compile_tool(call.tool)
        episode = simulator.episode([call.tool], call.entry.world or "w")
        try:
            (result,) = await episode.respond([ToolCall(tool.name, call.entry.arguments)])
        except InfrastructureFault:
            by_tool[tool.name].append(None)
            continue
        schema = output_of(tool)
        by_tool[tool.name].append(compared(call.entry, result.content, result.is_error, schema))
    every = [one for found in by_tool.values() for one in found]
    return {"total": summary(every), "tools": {name: summary(found) for name, found in sorted(by_tool.items())}}


def summary(found: Iterable[Comparison | None]) -> dict[str, float | int | None]:
    """Counts and means of comparisons; None stands for a call that the simulator failed on.

    ``refused_by_us`` and ``refused_by_them`` are the calls on whose validity the two disagree.
    """
    all_of = list(found)
    good = [one for one in all_of if one is not None]
    result: dict[str, float | int | None] = {
        "calls": len(all_of),
        "faults": len(all_of) - len(good),
        "real_errors": sum(one.real_error for one in good),
        "our_errors": sum(one.our_error for one in good),
        "refused_by_us": sum(one.our_error and not one.real_error for one in good),
        "refused_by_them": sum(one.real_error and not one.our_error for one in good),
        "agreed": sum(one.real_error == one.our_error for one in good) / len(good) if good else None,
    }
    for name in ("schema", "kind", "precision", "recall", "types"):
        values = [float(value) for one in good if (value := asdict(one)[name]) is not None]
        result[name] = statistics.fmean(values) if values else None
    sizes = [one.size for one in good if one.size is not None]
    result["size"] = statistics.median(sizes) if sizes else None
    return result


def read_recorded(path: Path, tools: Sequence[Mapping[str, Any]]) -> tuple[list[Recorded], list[str]]:
    """(real calls, problems of what was left out) of a recording, or of raw or SFT Toucan rows.

    Args:
        path: the file. Toucan rows bring their tools along.
        tools: declarations of the tools of a recording.

    Raises:
        DataError: the file cannot be read.
    """
    first = next(iter(read_records(path)), {})
    if {"tool", "response"} <= set(first):
        known = {compile_tool(tool).name: tool for tool in tools}
        entries = list(read_recording(path).entries())
        missing = {entry.tool for entry in entries} - set(known)
        problems = [f"{name}: recorded, but not among the tools; add its declaration" for name in sorted(missing)]
        return [Recorded(known[entry.tool], entry) for entry in entries if entry.tool in known], problems
    found: list[Recorded] = []
    problems = []
    for number, record in enumerate(read_records(path)):
        try:
            found += _from_row(record, f"{path} row {number}")
        except DataError as error:
            problems.append(str(error))
    return found, problems


def _from_row(record: Mapping[str, Any], where: str) -> Iterator[Recorded]:
    dialogue = dialogue_from(record, where)
    tools = {tool["function"]["name"]: tool for tool in dialogue.tools}
    for exchange in dialogue.exchanges:
        for step in exchange.steps:
            for call, response in zip(step.calls, step.results, strict=True):
                yield Recorded(tools[call.name], Entry(call.name, call.arguments, response, world=dialogue.uuid))


def _value(text: str) -> Any:
    """The JSON value of a response, or its text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "text"
    return {dict: "object", list: "array", int: "number", float: "number"}.get(type(value), "null")


def _fits(schema: Any, value: Any) -> bool | None:
    try:
        return not schema.errors(value)
    except SchemaLimitError:
        return None
