"""A reply to the form of the official result files, and whether a reply without calls is an abstention.

A result is a list of ``{name: "<JSON arguments>"}`` where the model called something in FC mode, else the text it
wrote. Strict is as official: calls as the server took them apart, or the text's hermes blocks where it did not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from harness.benchmarks.bfcl.names import Mode
from verl_slca.parsing import call_from, parse_turn
from verl_slca.trajectory import ToolCall

Result = list[dict[str, str]] | str

_THINKING = re.compile(r"^.*</think(?:ing)?>", re.DOTALL)
_FENCE = re.compile(r"```[\w-]*\n(.*?)```", re.DOTALL)
_END_TOKENS = re.compile(r"(?:\s*(?:<\|[\w]+\|>|</s>|<end_of_turn>))+\s*$")
_MARKUP = re.compile(
    r"</?tool_calls?>|<function[=_ ]|\[TOOL_CALLS\]|<\|python_tag\|>|\"(?:name|function)\"\s*:", re.IGNORECASE
)


def result_of(message: Mapping[str, Any], mode: Mode, lenient: bool) -> Result:
    """What the official result file would hold for this assistant message.

    Args:
        message: as the server sent it; an empty list of calls beside a text is no list of calls.
        mode: how the model was asked.
        lenient: forgive what stands around the calls: thinking, code fences, end tokens, and in FC mode JSON calls
            without any markup.
    """
    text = message.get("content") or ""
    if mode == "prompt":
        return _bare(text) if lenient else text
    if calls := message.get("tool_calls"):
        return [_as_said(call["function"].get("name"), call["function"].get("arguments")) for call in calls]
    turn = parse_turn(text)
    if turn.attempted:
        whole = turn.calls and all(block.error is None for block in turn.blocks)
        return [_as_said(call.name, call.arguments) for call in turn.calls] if whole else text
    return (_calls_in(_bare(text)) if lenient else None) or text


def attempts_call(message: Mapping[str, Any], names: Iterable[str]) -> bool:
    """True when a reply looks like a call, or like nothing: what cannot be decoded then is no abstention.

    Args:
        message: as the server sent it.
        names: of the functions on offer, as sent.

    Example:
        >>> attempts_call({"content": "None of these functions can help."}, ["area"])
        False
        >>> attempts_call({"content": "area(base=10"}, ["area"]), attempts_call({"content": " "}, ["area"])
        (True, True)
    """
    text = _THINKING.sub("", message.get("content") or "")
    if message.get("tool_calls") or not text.strip() or _MARKUP.search(text):
        return True
    # A refusal may name a function, and even its signature; a call comes first or gives a parameter its value.
    return any(re.search(rf"^\W*{re.escape(name)}\(|(?<![\w.]){re.escape(name)}\(\s*\w+\s*=", text) for name in names)


def _as_said(name: Any, arguments: Any) -> dict[str, str]:
    said = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {str(name or ""): said}


def _bare(text: str) -> str:
    text = _END_TOKENS.sub("", _THINKING.sub("", text))
    fenced = _FENCE.search(text)
    return (fenced.group(1) if fenced else text).strip()


def _calls_in(text: str) -> list[dict[str, str]] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    calls = [call_from(entry) for entry in (value if isinstance(value, list) else [value])]
    return [_as_said(call.name, call.arguments) for call in calls if isinstance(call, ToolCall)] or None
