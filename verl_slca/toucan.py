"""Toucan-1.5M rows to RL rows and SFT conversations (method section 6).

Three shapes come in: the raw configs (roles assistant with `function_call` / function; JSON inside strings), the
SFT config (roles tool_call / tool_response; a call is the repr of a Python dict) and rows that already follow the RL
schema. A dialogue becomes one RL row per user turn: everything before is context, the calls up to the answer are
gold, calls without a reply between them form one step. Rows that were cut or broken are `DataError`s.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from verl_slca.errors import DataError
from verl_slca.parsing import call_from, render_call
from verl_slca.rows import decoded, plain, read_records, read_tools, row_from_record
from verl_slca.trajectory import ToolCall

DATA_SOURCE = "toucan_toolcall"

_CALL_ROLES = ("tool_call",)
_RESULT_ROLES = ("function", "tool", "tool_response")


@dataclass
class Step:
    """What the assistant said before its calls, the calls of one step, and their results in the same order."""

    text: str
    calls: list[ToolCall]
    results: list[str] = field(default_factory=list)


@dataclass
class Exchange:
    """One user turn: the request, the steps taken, and the final answer."""

    request: str
    steps: list[Step] = field(default_factory=list)
    answer: str = ""


@dataclass(frozen=True)
class Dialogue:
    """One Toucan row, its structure restored."""

    uuid: str
    subset: str
    system: str
    tools: list[dict[str, Any]]
    exchanges: list[Exchange]


def convert(path: str | Path, to: Literal["rl", "sft"]) -> tuple[list[dict[str, Any]], list[str]]:
    """(converted rows, problems of the rows left out) of a Toucan file (parquet, jsonl or json).

    Args:
        path: rows in any of the three shapes; a row in the RL schema stays as it is.
        to: ``"rl"`` for rows of the RL schema, ``"sft"`` for ``{"messages", "tools"}`` conversations.

    Raises:
        DataError: the file cannot be read.
    """
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    for number, record in enumerate(read_records(path)):
        where = f"{path} row {number}"
        try:
            rows += rl_records(record, where) if to == "rl" else [sft_record(record, where)]
        except DataError as error:
            problems.append(str(error))
    return rows, problems


def rl_records(record: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """RL rows of one record, one per user turn, each checked by `row_from_record`.

    Raises:
        DataError: the record is cut or broken.
    """
    if "reward_model" in record:
        row_from_record(record, where)
        return [dict(record)]
    dialogue = dialogue_from(record, where)
    rows = []
    for turn, exchange in enumerate(dialogue.exchanges):
        context = [message for past in dialogue.exchanges[:turn] for message in _messages(past)]
        system = [{"role": "system", "content": dialogue.system}] if dialogue.system else []
        gold = [[{"name": c.name, "arguments": c.arguments} for c in step.calls] for step in exchange.steps]
        truth = {
            "question_content": exchange.request,
            "allowed_tools": [tool["function"]["name"] for tool in dialogue.tools],
            "tool_schemas": json.dumps(dialogue.tools, ensure_ascii=False),
            "gold_tool_calls": json.dumps(gold, ensure_ascii=False),
            "subset_name": "tool_call" if gold else "irrelevant",
        }
        row = {
            "prompt": [*system, *context, {"role": "user", "content": exchange.request}],
            "data_source": DATA_SOURCE,
            "tools": json.dumps(dialogue.tools, ensure_ascii=False),
            "reward_model": {"style": "rule", "ground_truth": truth},
            "extra_info": {"uuid": dialogue.uuid, "subset_name": dialogue.subset, "original_turn_index": turn},
        }
        row_from_record(row, where)
        rows.append(row)
    return rows


def sft_record(record: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The whole dialogue as chat messages with hermes ``<tool_call>`` blocks, and its tools.

    Raises:
        DataError: the record is cut or broken, or is an RL row, which holds no answers.
    """
    if "messages" not in record and "reward_model" in record:
        raise DataError("an RL row holds no answers to learn from; convert raw or SFT rows", where=where)
    dialogue = dialogue_from(record, where)
    system = [{"role": "system", "content": dialogue.system}] if dialogue.system else []
    messages = system + [message for exchange in dialogue.exchanges for message in _messages(exchange)]
    return {"messages": messages, "tools": dialogue.tools}


def dialogue_from(record: Mapping[str, Any], where: str) -> Dialogue:
    """The structure of a raw or SFT record.

    Left aside: a system message in Kimi's own markup (the tools are read from their column), `target_tools` (often
    never called), reasoning content, and the `question` column (may be cut; the user messages hold it).

    Raises:
        DataError: missing columns; messages or tools that are not JSON; an unreadable call; a call of a tool that is
            not offered; results that do not match the calls; a dialogue that breaks off before an answer.
    """
    tools_column = "available_tools" if "available_tools" in record else "tools"
    if record.get("messages") is None or record.get(tools_column) is None:
        found = ", ".join(sorted(map(str, record)))
        raise DataError(f"missing column messages or available_tools / tools; found: {found}", where=where)
    tools = read_tools(record[tools_column], where)
    messages = plain(decoded(plain(record["messages"]), "messages", where))
    if not isinstance(messages, list) or not messages:
        raise DataError(f"messages: expected a list of messages, got {type(messages).__name__}", where=where)
    system, exchanges = _read(messages, {tool["function"]["name"] for tool in tools}, where)
    return Dialogue(str(record.get("uuid") or ""), str(record.get("subset_name") or ""), system, tools, exchanges)


def _read(messages: Iterable[Any], offered: set[str], where: str) -> tuple[str, list[Exchange]]:
    system = ""
    exchanges: list[Exchange] = []
    text: list[str] = []
    for position, message in enumerate(messages):
        place = f"messages[{position}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise DataError(f"{place}: expected an object with role and content", where=where)
        role, content = message["role"], _text(message.get("content"))
        if role == "system":
            system = "" if content.startswith("<|im_system|>") else content
        elif role == "user":
            if exchanges:
                _finish(exchanges[-1], text, f"{place}: the turn before", where)
            exchanges.append(Exchange(_unquoted(content)))
            text = []
        elif not exchanges:
            raise DataError(f"{place}: a {role} message before any user message", where=where)
        elif role in _RESULT_ROLES:
            _add_result(exchanges[-1], message, content, place, where)
        elif role == "assistant" or role in _CALL_ROLES:
            calls = _calls(message, content, role, place, where)
            unknown = [call.name for call in calls if call.name not in offered]
            if unknown:
                raise DataError(f"{place}: calls {unknown[0]!r}, which is not offered", where=where)
            if not calls:
                text += [content] if content.strip() else []
            elif exchanges[-1].steps and not exchanges[-1].steps[-1].results and not text:
                exchanges[-1].steps[-1].calls += calls
            else:
                said = [*text, content] if role == "assistant" and content.strip() else text
                exchanges[-1].steps.append(Step("\n".join(said), calls))
                text = []
        else:
            raise DataError(f"{place}: unknown role {role!r}", where=where)
    if not exchanges:
        raise DataError("messages: no user message", where=where)
    _finish(exchanges[-1], text, "the dialogue", where)
    return system, exchanges


def _finish(exchange: Exchange, text: list[str], what: str, where: str) -> None:
    for step in exchange.steps:
        if len(step.results) != len(step.calls):
            raise DataError(
                f"{what} has {len(step.calls)} calls of {step.calls[0].name!r} and others in one step, but "
                f"{len(step.results)} results; the row was cut, drop it",
                where=where,
            )
    if not text:
        raise DataError(f"{what} breaks off before an answer; the row was cut, drop it", where=where)
    exchange.answer = "\n".join(text)


def _add_result(exchange: Exchange, message: Mapping[str, Any], content: str, place: str, where: str) -> None:
    """Give a result to its call: results carry no ids, they come in the order of the calls, some with a name."""
    step = exchange.steps[-1] if exchange.steps else None
    if step is None or len(step.results) >= len(step.calls):
        raise DataError(f"{place}: a tool result without a call", where=where)
    name, expected = message.get("name"), step.calls[len(step.results)].name
    if name and name != expected:
        raise DataError(f"{place}: the result is of {name!r}, the call in its place is {expected!r}", where=where)
    step.results.append(content)


def _calls(message: Mapping[str, Any], content: str, role: str, place: str, where: str) -> list[ToolCall]:
    entries: list[Any] = []
    if role in _CALL_ROLES:
        entries = [_literal(content, place, where)]
    elif message.get("function_call"):
        entries = [decoded(message["function_call"])]
    elif message.get("tool_calls"):
        listed = decoded(message["tool_calls"])
        entries = [e.get("function", e) if isinstance(e, dict) else e for e in listed] if listed else []
    calls = []
    for entry in entries:
        call = call_from(entry)
        if isinstance(call, str):
            raise DataError(f"{place}: {call}", where=where)
        calls.append(call)
    return calls


def _literal(content: str, place: str, where: str) -> Any:
    value = decoded(content)
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(content.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise DataError(
            f"{place}: a tool call that is neither JSON nor a Python dict: {content[:80]!r}", where
        ) from error


def _messages(exchange: Exchange) -> list[dict[str, str]]:
    messages = [{"role": "user", "content": exchange.request}]
    for step in exchange.steps:
        blocks = "\n".join(render_call(call) for call in step.calls)
        messages.append({"role": "assistant", "content": f"{step.text}\n{blocks}" if step.text else blocks})
        messages += [{"role": "tool", "content": result} for result in step.results]
    return [*messages, {"role": "assistant", "content": exchange.answer}]


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content)
    return str(content)


def _unquoted(text: str) -> str:
    """The request without the quotation marks that some rows wrap around all of it."""
    bare = text.strip()
    if len(bare) < 2 or bare[0] != '"' or bare[-1] != '"' or '"' in bare[1:-1].replace('\\"', ""):
        return text
    value = decoded(bare)
    return value if isinstance(value, str) and value != bare else bare[1:-1]
