"""The verbs that tool names are made of: what a call does to the world, and what a response to it looks like."""

from __future__ import annotations

import functools
from typing import Any, Literal, get_args

from verl_slca.sgls.samples import tokens
from verl_slca.sgls.schema import CompiledTool

Effect = Literal["read", "list", "create", "update", "delete", "write"]
"""``write`` changes something that is no thing with a name: a transfer, a reset."""
EFFECTS: tuple[Effect, ...] = get_args(Effect)

_CALCULATIONS = ("calculate", "compute", "convert", "count", "estimate", "sum", "subtract", "multiply", "divide",
                 "mean", "average", "sqrt", "modulo", "power", "floor", "ceil", "round", "max", "min")  # fmt: skip
_CHECKS = ("is", "has", "validate", "verify", "exists")
_VERBS: dict[Effect, tuple[str, ...]] = {
    "list": ("list", "search", "find", "query", "browse", "discover"),
    "create": (
        "create", "add", "insert", "post", "send", "book", "schedule", "upload", "save", "write", "generate", "make",
        "register", "submit", "start", "open", "build", "export", "publish", "reply", "reserve", "order", "borrow",
        "rent", "buy", "purchase", "subscribe", "append", "place", "checkout",
    ),
    "update": (
        "update", "set", "edit", "modify", "rename", "move", "change", "configure", "replace", "toggle", "enable",
        "disable", "assign", "patch", "increment", "lock", "unlock", "mark", "complete", "put", "close", "reopen",
        "cancel", "archive", "unarchive", "stop", "resolve", "approve", "reject", "restock", "replenish", "activate",
        "deactivate", "suspend", "resume", "pause",
    ),
    "delete": ("delete", "remove", "clear", "drop", "destroy", "erase", "purge", "unsubscribe", "revoke"),
    "write": (
        "transfer", "pay", "withdraw", "deposit", "turn", "reset", "execute", "trigger", "restart", "sell", "consume",
    ),
    "read": (
        "get", "fetch", "read", "show", "describe", "lookup", "retrieve", "check", "view", "download", "analyze",
        "extract", "look", "locate", "compare", "return", "provide", "measure", *_CALCULATIONS, *_CHECKS,
    ),
}  # fmt: skip
EFFECT_OF_VERB: dict[str, Effect] = {verb: effect for effect, verbs in _VERBS.items() for verb in verbs}
"""`adds_numbers` tells when ``add`` is a sum instead."""
CALCULATING, CHECKING = frozenset(_CALCULATIONS), frozenset(_CHECKS)

STATUS_AFTER = {
    "close": "closed", "reopen": "open", "cancel": "cancelled", "archive": "archived", "unarchive": "active",
    "stop": "stopped", "resolve": "resolved", "approve": "approved", "reject": "rejected", "complete": "completed",
    "activate": "active", "deactivate": "inactive", "enable": "enabled", "disable": "disabled", "suspend": "suspended",
    "resume": "active", "pause": "paused", "lock": "locked", "unlock": "unlocked",
}  # fmt: skip
"""What the status of a thing is once that was done to it."""
MADE_BY = {
    "book": "booking", "reserve": "reservation", "order": "order", "buy": "order", "purchase": "order", "rent":
    "rental", "borrow": "loan", "subscribe": "subscription", "checkout": "order", "pay": "payment", "transfer":
    "transfer", "withdraw": "withdrawal", "deposit": "deposit", "sell": "sale",
}  # fmt: skip
"""What a verb makes of the thing that it names: who books a flight has a booking, not another flight."""
RESOLVABLE = frozenset(("issue", "ticket", "incident", "alert", "thread", "comment", "case", "dispute", "bug"))
"""What is closed by being resolved; anything else that is resolved, a host name say, is looked up."""
MADE_ITSELF = frozenset((*MADE_BY.values(), "appointment", "meeting", "ticket", "call", "session", "demo", "visit"))
"""Things that one books, orders or reserves themselves."""

ALSO_NOUNS = frozenset((
    "order", "book", "transfer", "schedule", "post", "set", "open", "close", "start", "stop", "move", "change", "list",
    "count", "check", "view", "show", "put", "mark", "build", "write", "is", "has", "max", "min", "sum", "round",
    "power", "place", "archive", "lock", "complete", "checkout", "pause", "exists",
))  # fmt: skip
"""Verbs that decide only where no plainer one does: `order_status` orders nothing, `book_search` books nothing."""

_FILLERS = {
    "numbers", "number", "nums", "num", "values", "two", "integers", "ints", "floats", "list", "a", "b", "and",
    "calculator", "calc", "math",
}  # fmt: skip


@functools.lru_cache(maxsize=4096)
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
