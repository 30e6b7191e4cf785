"""Dataset rows: what the policy is shown, which tools it has, and what the right calls are.

The RL schema is that of the paper's published data: columns `prompt`, `data_source`, `tools`, `extra_info`
and `reward_model.ground_truth`. Any field may be JSON inside a string, and gold calls come nested by step,
flat, as names only, or as text. Whatever cannot be used is a `DataError` before training starts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from verl_slca.declared import declares
from verl_slca.errors import DataError

MAX_SHOWN = 20
"""Most errors listed for one file."""


@dataclass(frozen=True, slots=True)
class GoldCall:
    """One right call; `arguments` is None where the row states the name only."""

    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Gold:
    """What a rollout is scored against.

    Attributes:
        question: the user's request.
        allowed_tools: names the policy may call.
        steps: gold calls, those of one step together.
        stepped: False when the row gives a flat list, which leaves the grouping into steps unknown.
        context: what was said before the question in the same conversation, "" for a first turn.
        subset: name of the data's subset, "" when not given.
    """

    question: str = ""
    allowed_tools: tuple[str, ...] = ()
    steps: tuple[tuple[GoldCall, ...], ...] = ()
    stepped: bool = True
    context: str = ""
    subset: str = ""

    @property
    def calls(self) -> tuple[GoldCall, ...]:
        """Every gold call, in order."""
        return tuple(call for step in self.steps for call in step)


@dataclass(frozen=True, slots=True)
class Row:
    """One checked dataset row.

    Attributes:
        prompt: chat messages, each with at least role and content.
        tools: OpenAI-style tools, ``{"type": "function", "function": {name, description, parameters}}``.
        gold: what a rollout of this row is scored against.
        data_source: the row's own name for where it comes from.
        extra: the row's `extra_info`.
        key: short hash of prompt and tools (not of the gold, which may itself depend on the simulated world that
            the key selects), the same for all rollouts of the row and in every process.
    """

    prompt: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    gold: Gold
    data_source: str
    extra: dict[str, Any] = field(default_factory=dict)
    key: str = ""

    @property
    def template_tools(self) -> list[dict[str, Any]] | None:
        """Tools for the chat template to render; None when there are none or the prompt already shows them."""
        system = "\n".join(str(m["content"]) for m in self.prompt if m["role"] == "system")
        return None if declares(system, self.tools) else [for_template(tool) for tool in self.tools]


def for_template(tool: Mapping[str, Any]) -> dict[str, Any]:
    """What a chat template gets of an OpenAI-style tool: name, description and parameters, as from vLLM.

    Whatever else a tool holds, such as the schema of its response, would be shown to the model in training and
    then be missing from the prompts of another server.
    """
    function = {key: tool["function"][key] for key in ("name", "description", "parameters") if key in tool["function"]}
    return {"type": "function", "function": function}


def load_rows(path: str | Path) -> list[Row]:
    """Every row of a ``.parquet``, ``.jsonl`` or ``.json`` (a list of objects) file.

    Raises:
        DataError: the file cannot be read, is empty, or has bad rows; up to 20 of them are listed.
    """
    path = Path(path)
    rows: list[Row] = []
    problems: list[str] = []
    for number, record in enumerate(read_records(path)):
        try:
            rows.append(row_from_record(record, where=f"row {number}"))
        except DataError as error:
            problems.append(str(error))
    if problems:
        raise DataError(listed(problems, len(rows) + len(problems)), where=str(path))
    if not rows:
        raise DataError("the dataset is empty; expected at least one row", where=str(path))
    return rows


def listed(problems: list[str], total: int) -> str:
    """One message for the bad rows of a file."""
    lines = [f"{len(problems)} of {total} rows cannot be used:", *problems[:MAX_SHOWN]]
    if len(problems) > MAX_SHOWN:
        lines.append(f"... and {len(problems) - MAX_SHOWN} more")
    return "\n  ".join(lines)


def read_records(path: str | Path) -> Iterator[Mapping[str, Any]]:
    """The raw records of a ``.parquet``, ``.jsonl`` or ``.json`` file, one after the other.

    Raises:
        DataError: no such file, another kind of file, or a line that is not a JSON object.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("no such file", where=str(path))
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        try:
            table = pyarrow.parquet.ParquetFile(path)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise DataError(f"not a readable parquet file ({error})", where=str(path)) from error
        for batch in table.iter_batches(batch_size=256):
            yield from batch.to_pylist()
    elif path.suffix == ".jsonl":
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _object(line, f"{path} line {number}")
    elif path.suffix == ".json":
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"not valid JSON ({error})", where=str(path)) from error
        if not isinstance(values, list):
            raise DataError(f"expected a JSON list of rows, got {type(values).__name__}", where=str(path))
        for number, value in enumerate(values):
            if not isinstance(value, dict):
                raise DataError(f"expected an object, got {_shown(value)}", where=f"{path} row {number}")
            yield value
    else:
        raise DataError(f"unknown file type {path.suffix!r}; allowed: .parquet, .jsonl, .json", where=str(path))


def row_from_record(record: Mapping[str, Any], where: str) -> Row:
    """The checked row of one raw record (RL schema; values may be JSON text or numpy arrays).

    Args:
        record: columns by name.
        where: file and row number, for messages.

    Raises:
        DataError: a column is missing or unusable, two tools share a name, a gold call has an unknown shape or
            names a tool that is not offered.

    Example:
        >>> row = row_from_record({
        ...     "prompt": [{"role": "user", "content": "Is h1 up?"}], "data_source": "demo",
        ...     "tools": '[{"name": "ping", "parameters": {"type": "object"}}]',
        ...     "reward_model": {"ground_truth": {"gold_tool_calls": '[[{"name": "ping", "arguments": {}}]]'}},
        ... }, where="row 0")
        >>> row.gold.calls, row.gold.question
        ((GoldCall(name='ping', arguments={}),), 'Is h1 up?')
    """
    missing = [name for name in ("prompt", "data_source", "reward_model") if record.get(name) is None]
    if missing:
        found = ", ".join(sorted(str(key) for key in record))
        raise DataError(f"missing column {', '.join(missing)}; found: {found}", where=where)
    prompt = _prompt(plain(record["prompt"]), where)
    reward_model = _mapping(record["reward_model"], "reward_model", where)
    if "ground_truth" not in reward_model:
        raise DataError(f"reward_model has no ground_truth; found: {', '.join(reward_model)}", where=where)
    truth = _mapping(reward_model["ground_truth"], "reward_model.ground_truth", where)
    extra = _mapping(record.get("extra_info") or {}, "extra_info", where)
    schemas = record.get("tools")
    schemas = truth.get("tool_schemas") if schemas is None else schemas
    tools = read_tools(schemas, where)
    offered = [tool["function"]["name"] for tool in tools]

    gold = gold_from(truth, where, strict=True)
    allowed = gold.allowed_tools or tuple(offered)
    without_schema = [name for name in allowed if name not in offered]
    if without_schema:
        raise DataError(
            f"allowed_tools: {without_schema[0]!r} has no schema in tools (offered: {_names(offered)})", where=where
        )
    for call in gold.calls:
        if call.name not in allowed:
            raise DataError(
                f"gold_tool_calls: {call.name!r} is not among the tools offered ({_names(allowed)}); "
                "offer it or drop the row",
                where=where,
            )
    spoken = [str(m["content"]) for m in prompt if m["role"] != "system"]
    question = gold.question or str(extra.get("question") or (spoken[-1] if spoken else ""))
    gold = Gold(question, allowed, gold.steps, gold.stepped, "\n".join(spoken[:-1]), gold.subset)
    digest = hashlib.sha256(json.dumps([prompt, tools], sort_keys=True, default=str).encode()).hexdigest()[:16]
    return Row(prompt, tools, gold, str(record["data_source"]), extra, digest)


def gold_from(truth: Mapping[str, Any], where: str, strict: bool = False) -> Gold:
    """What a `ground_truth` object asks for.

    Gold calls may be a list of steps, a flat list (grouping unknown), one object, names, or JSON text of any
    of these; a bare call among steps is a step of its own, and `parameters` is read where `arguments` is
    absent. (The release silently drops what it cannot read and takes a flat list for one parallel step.)

    Args:
        truth: `allowed_tools`, `gold_tool_calls`, `question_content`, `subset_name`, all optional.
        where: file and row number, for messages.
        strict: also refuse entries that are not calls at all (numbers, null), otherwise skipped.

    Raises:
        DataError: gold or allowed tools in an unknown shape.
    """
    allowed = plain(decoded(truth.get("allowed_tools")))
    if allowed in (None, ""):
        allowed = []
    if isinstance(allowed, str):
        allowed = [allowed]
    if not isinstance(allowed, list):
        raise DataError(f"allowed_tools: expected a list of names, got {_shown(allowed)}", where=where)
    raw = plain(decoded(truth.get("gold_tool_calls"), "gold_tool_calls", where))
    if raw in (None, "", {}):
        raw = []
    items = [decoded(item) for item in raw] if isinstance(raw, list) else [raw]
    stepped = not isinstance(raw, list) or len(items) < 2 or any(isinstance(item, list) for item in items)
    steps: list[tuple[GoldCall, ...]] = []
    for item in items:
        entries = item if isinstance(item, list) else [item]
        calls = tuple(call for entry in entries if (call := _gold_call(decoded(entry), where, strict)) is not None)
        if calls:
            steps.append(calls)
    if not stepped:
        steps = [tuple(call for step in steps for call in step)] if steps else []
    return Gold(
        question=str(truth.get("question_content") or ""),
        allowed_tools=tuple(str(name) for name in allowed),
        steps=tuple(steps),
        stepped=stepped,
        subset=str(truth.get("subset_name") or ""),
    )


def read_tools(value: Any, where: str) -> list[dict[str, Any]]:
    """OpenAI-style tools from what a row holds: a list or JSON text, wrapped as functions or bare.

    Raises:
        DataError: not JSON, not a list of objects, a tool without a name, two tools with one name.
    """
    value = plain(decoded(value, "tools", where))
    if value in (None, ""):
        return []
    if not isinstance(value, list):
        raise DataError(f"tools: expected a list of tools or its JSON text, got {_shown(value)}", where=where)
    tools: list[dict[str, Any]] = []
    seen: set[str] = set()
    for position, item in enumerate(value):
        item = decoded(item)
        function = decoded(item.get("function", item)) if isinstance(item, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str) or not name:
            raise DataError(f"tools[{position}]: expected an object with a name, got {_shown(item)}", where=where)
        if name in seen:
            raise DataError(f"tools[{position}]: {name!r} is offered twice; names must be unique", where=where)
        seen.add(name)
        schema = next((function[k] for k in ("parameters", "input_schema", "inputSchema") if function.get(k)), None)
        schema = decoded(schema) if schema is not None else {"type": "object", "properties": {}}
        if not isinstance(schema, dict):
            raise DataError(f"tools[{position}] {name!r}: parameters must be an object, got {_shown(schema)}", where)
        described = {"name": name, "description": str(function.get("description") or ""), "parameters": schema}
        tools.append({"type": "function", "function": {**function, **described}})
    return tools


def decoded(value: Any, column: str | None = None, where: str = "") -> Any:
    """`value` with JSON text unwrapped, however often it was dumped.

    Text that is not JSON is returned as it is, or refused when a column is named.

    Raises:
        DataError: text in `column` that is neither empty nor JSON.
    """
    for _ in range(4):
        if not isinstance(value, str) or not value.strip():
            return value
        if column is None and value.lstrip()[0] not in '[{"':
            return value
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            if column is None:
                return value
            raise DataError(f"{column}: not valid JSON ({error}): {_shown(value)}", where=where) from error
    return value


def plain(value: Any) -> Any:
    """`value` with numpy arrays and scalars, tuples and mappings as built-in lists, numbers and dicts."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


def _gold_call(entry: Any, where: str, strict: bool) -> GoldCall | None:
    if isinstance(entry, str) and entry:
        return GoldCall(entry, None)
    if not isinstance(entry, dict):
        if strict or isinstance(entry, list | str):
            raise DataError(
                f"gold_tool_calls: expected a tool name or an object with name and arguments, got {_shown(entry)}",
                where=where,
            )
        return None
    entry = entry.get("function", entry)
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise DataError(f"gold_tool_calls: name must be a non-empty string, got {_shown(name)}", where=where)
    arguments = entry["arguments"] if "arguments" in entry else entry.get("parameters")
    arguments = decoded(arguments) if arguments is not None else {}
    if not isinstance(arguments, dict):
        raise DataError(
            f"gold_tool_calls: arguments of {name!r} must be an object, got {_shown(arguments)}", where=where
        )
    return GoldCall(name, arguments)


def _prompt(value: Any, where: str) -> list[dict[str, Any]]:
    messages = decoded(value)
    if isinstance(messages, str) and messages.strip():
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, list) or not messages:
        raise DataError(f"prompt: expected a list of messages, got {_shown(messages)}", where=where)
    checked: list[dict[str, Any]] = []
    for position, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise DataError(
                f"prompt[{position}]: expected an object with role and content, got {_shown(message)}", where
            )
        message = {key: item for key, item in message.items() if item is not None}
        checked.append({"content": "", **message})
    return checked


def _mapping(value: Any, column: str, where: str) -> dict[str, Any]:
    value = plain(decoded(plain(value), column, where))
    if not isinstance(value, dict):
        raise DataError(f"{column}: expected an object or its JSON text, got {_shown(value)}", where=where)
    return value


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8"))
    except ValueError as error:
        raise DataError(f"not valid JSON ({error}): {_shown(line)}", where=where) from error
    if not isinstance(value, dict):
        raise DataError(f"expected an object, got {_shown(value)}", where=where)
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _names(names: Any) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") or "none"
