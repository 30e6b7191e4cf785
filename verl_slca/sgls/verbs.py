"""The verbs that tool names are made of, by what a response to them looks like."""

from __future__ import annotations

from typing import Any

from verl_slca.sgls.samples import tokens
from verl_slca.sgls.schema import CompiledTool

VERBS = {
    **dict.fromkeys(("list", "search", "find", "query", "browse", "discover"), "list"),
    **dict.fromkeys(
        ("create", "add", "insert", "post", "send", "book", "schedule", "upload", "save", "write", "generate", "make",
         "register", "submit", "start", "open", "build", "export", "publish", "reply"),
        "create",
    ),
    **dict.fromkeys(
        ("update", "set", "edit", "modify", "rename", "move", "change", "configure", "replace", "toggle", "enable",
         "disable", "assign"),
        "update",
    ),
    **dict.fromkeys(("delete", "remove", "cancel", "clear", "close", "stop", "drop", "archive"), "delete"),
    **dict.fromkeys(
        ("calculate", "compute", "convert", "count", "estimate", "sum", "subtract", "multiply", "divide", "mean",
         "average", "sqrt", "modulo", "power", "floor", "ceil", "round", "max", "min"),
        "calculate",
    ),
    **dict.fromkeys(("is", "has", "validate", "verify", "exists"), "check"),
    **dict.fromkeys(
        ("get", "fetch", "read", "show", "describe", "lookup", "retrieve", "check", "view", "resolve", "download",
         "analyze", "extract"),
        "get",
    ),
}  # fmt: skip
"""The shape of a response by the verb; `adds_numbers` tells the one that may mean two things."""

_FILLERS = {
    "numbers", "number", "nums", "num", "values", "two", "integers", "ints", "floats", "list", "a", "b", "and",
    "calculator", "calc", "math",
}  # fmt: skip


def operation(name: str) -> str:
    """What a calculator of that name does: its last word, those that only speak of numbers aside.

    Example:
        >>> operation("calculator-add_two_numbers"), operation("add_note")
        ('add', 'note')
    """
    return next((word for word in reversed(tokens(name)) if word not in _FILLERS), "")


def adds_numbers(tool: CompiledTool) -> bool:
    """Whether ``add`` in the tool's name stands for a sum: nothing but numbers is added, and to nothing."""
    parameters = tool.parameters.schema.get("properties", {}).values()
    return operation(tool.name) == "add" and bool(parameters) and all(map(_is_numeric, parameters))


def _is_numeric(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    return kind in ("number", "integer") or (kind == "array" and _is_numeric(schema.get("items")))
