"""Which tools a system message declares: by their schemas being there, not by their names being mentioned."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_DECODER = json.JSONDecoder()
_OPENING = re.compile(r"[\[{]")
_SCHEMAS = ("parameters", "input_schema", "inputSchema")


def declares(text: str, tools: Sequence[Mapping[str, Any]]) -> bool:
    """Whether JSON in `text` shows the schema of each of the OpenAI-style `tools`.

    Example:
        >>> ping = {"name": "ping", "parameters": {"type": "object", "properties": {"host": {"type": "string"}}}}
        >>> tools = [{"type": "function", "function": ping}]
        >>> declares('Tools: [{"name": "ping", "parameters": {"properties": {"host": {}}}}]', tools)
        True
        >>> declares('Never call "ping" twice.', tools)
        False
    """
    if not all(tool["function"]["name"] in text for tool in tools):
        return False
    shown = {name: properties for value in _values(text) for name, properties in _functions(value)}
    return all(
        shown.get(tool["function"]["name"], set()) >= set(_properties(tool["function"]) or ())
        and tool["function"]["name"] in shown
        for tool in tools
    )


def _values(text: str) -> Iterator[Any]:
    position = 0
    while found := _OPENING.search(text, position):
        try:
            value, position = _DECODER.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            position = found.end()
        else:
            yield value


def _functions(value: Any) -> Iterator[tuple[str, set[str]]]:
    if isinstance(value, list):
        for item in value:
            yield from _functions(item)
    elif isinstance(value, dict):
        function = value.get("function", value)
        if isinstance(function, dict) and isinstance(function.get("name"), str) and "arguments" not in function:
            yield function["name"], set(_properties(function) or ())
        elif "tools" in value:
            yield from _functions(value["tools"])


def _properties(function: Mapping[str, Any]) -> Mapping[str, Any] | None:
    schema = next((function[key] for key in _SCHEMAS if isinstance(function.get(key), dict)), None)
    properties = schema.get("properties") if schema else None
    return properties if isinstance(properties, dict) else None
