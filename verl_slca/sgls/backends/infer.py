"""An output schema for a tool that declares none: from what it does, to what, and the nouns around it.

The schema depends on the tool alone, so every response of a tool has one shape.
"""

from __future__ import annotations

import functools
from typing import Any

from verl_slca.sgls.effects import Action, action_of
from verl_slca.sgls.generate import COUNT, ECHO
from verl_slca.sgls.normalise import normalised
from verl_slca.sgls.samples import tokens
from verl_slca.sgls.schema import CompiledSchema, CompiledTool
from verl_slca.sgls.things import singular, spelled
from verl_slca.sgls.verbs import MADE_BY

_TOPICS: dict[str, tuple[str, ...]] = {
    "weather": ("temperature", "condition", "humidity"),
    "forecast": ("date", "temperature", "condition"),
    "share": ("symbol", "price", "change"),
    "ticker": ("symbol", "price", "change"),
    "inventory": ("stock", "updated_at"),
    "temperature": ("temperature", "condition"),
    "distance": ("distance", "duration"),
    "rate": ("rate", "updated_at"),
    "warehouse": ("name", "city", "stock"),
    "price": ("price", "currency"),
    "quote": ("price", "change"),
    "exchange": ("rate", "currency"),
    "market": ("symbol", "price", "volume"),
    "location": ("latitude", "longitude"),
    "geocode": ("latitude", "longitude"),
    "coordinate": ("latitude", "longitude"),
    "route": ("distance", "duration"),
    "direction": ("distance", "duration"),
    "flight": ("airline", "price", "departure_time"),
    "hotel": ("name", "price", "rating"),
    "restaurant": ("name", "rating", "city"),
    "event": ("title", "date", "city"),
    "meeting": ("title", "date", "time"),
    "email": ("subject", "email", "date"),
    "message": ("content", "user", "created_at"),
    "user": ("name", "email"),
    "profile": ("name", "email"),
    "contact": ("name", "email"),
    "movie": ("title", "year", "rating"),
    "book": ("title", "author", "year"),
    "paper": ("title", "author", "year"),
    "article": ("title", "author", "date"),
    "news": ("title", "url", "date"),
    "video": ("title", "url", "duration"),
    "file": ("name", "size", "updated_at"),
    "task": ("title", "status", "due_date"),
    "issue": ("title", "status", "author"),
    "order": ("status", "amount", "currency"),
    "booking": ("status", "date"),
    "product": ("name", "price", "rating"),
    "balance": ("balance", "currency"),
    "account": ("name", "balance", "currency"),
    "time": ("time", "timezone"),
}
_STOCK_OF_GOODS = ("stock", "updated_at")
_STOCK_OF_COMPANY = ("symbol", "price", "change")
_GOODS_WORDS = {"inventory", "warehouse", "product", "products", "item", "items", "sku", "store", "quantity", "level",
                "levels", "shop", "available"}  # fmt: skip
"""Beside one of these, a stock is what a shop has of its goods, not what an exchange trades."""
_NUMERIC = {"temperature", "humidity", "price", "change", "rate", "volume", "latitude", "longitude", "distance",
            "duration", "rating", "year", "size", "amount", "balance"}  # fmt: skip
_WHOLE = {"stock", "year", "size", "humidity", "volume"}
_TAILS = {
    "detail", "info", "information", "data", "history", "stat", "statistic", "summary", "report", "record", "result",
    "list", "by", "id", "item",
}  # fmt: skip
"""Last words of names that say nothing of what is shown: a `stock_data` is about a stock."""
_AMBIGUOUS = {
    "time", "user", "file", "message", "order", "event", "issue", "task", "book", "route", "location", "exchange",
    "market", "stock", "share", "meeting", "contact", "price", "quote", "balance", "account", "article", "video",
    "profile", "product", "paper", "ticker", "coordinate", "direction", "booking", "email",
}  # fmt: skip
"""Topics that other tools speak of in passing: only what the name ends in is about them."""
_DESCRIBING = 6
"""Words of a description that say what the tool is about."""
_MAX_ECHOES = 4


def output_of(tool: CompiledTool) -> CompiledSchema:
    """The schema that a tool's responses follow: the one it declares, else the one guessed for it."""
    return tool.output if tool.output is not None else inferred_output(tool)


@functools.lru_cache(maxsize=4096)
def inferred_output(tool: CompiledTool) -> CompiledSchema:
    """The output schema guessed for `tool`; the same object as long as the tool is in the cache."""
    action = action_of(tool)
    echoes = _echoes(tool.parameters.schema)
    fields = _fields(tool, action, echoes)
    return CompiledSchema(normalised(_object(fields), f"tool {tool.name!r}: inferred output", arguments=False))


def _fields(tool: CompiledTool, action: Action, echoes: dict[str, Any]) -> dict[str, Any]:
    """The fields of a response, by what the tool does."""
    done, moment = {"success": {"const": True}}, {"type": "string", "format": "date-time"}
    if action.effect == "list":
        item = _object({"id": _IDENTIFIER, **_topic(tool, action)})
        return {**echoes, _list_name(tool, action): {"type": "array", "items": item, COUNT: 2}}
    if action.effect == "create":
        name = f"{action.kind}_id"
        if name in map(spelled, tool.parameters.schema.get("properties", {})):  # it says to what something is added
            name = "id"
        return {**done, name: _IDENTIFIER, **echoes, "created_at": moment}
    if action.effect == "update":
        status = {"status": {"const": action.status}} if action.status else {}
        return {**done, **echoes, **status, "updated_at": moment}
    if action.effect == "delete":
        return {**done, **echoes, "status": {"const": "deleted"}}
    if action.effect == "write":
        receipt = {f"{MADE_BY[action.verb]}_id": _IDENTIFIER} if action.verb in MADE_BY else {}
        return {**done, **receipt, **echoes, "completed_at": moment}
    if action.calculates:
        return {**echoes, "result": {"type": "integer" if action.verb == "count" else "number"}}
    if action.checks:
        return {**echoes, "valid": {"type": "boolean"}}
    return {**echoes, **_topic(tool, action)}


_IDENTIFIER = {"type": ["string", "integer"]}
"""Of the type that the tools which ask for it want; `backends.world` knows that one."""


def _list_name(tool: CompiledTool, action: Action) -> str:
    """Under which name a list stands: the plural in the tool's name, `results` where there is none."""
    words = tokens(tool.name)
    at = next((i for i, word in enumerate(words) if singular(word) == action.kind and word != action.kind), None)
    return words[at] if at is not None else "results"


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    required = [name for name, field in fields.items() if not field.get(ECHO)]
    return {"type": "object", "properties": fields, "required": required}


def _echoes(parameters: dict[str, Any]) -> dict[str, Any]:
    """One field for each of a few parameters, present only when the argument is: identifiers, then required ones."""
    properties = parameters.get("properties", {})
    required = [name for name in parameters.get("required", ()) if name in properties]
    names = list(dict.fromkeys([*required, *properties]))
    first = sorted(names, key=lambda name: spelled(name).rsplit("_", 1)[-1] != "id")[:_MAX_ECHOES]
    return {name: {ECHO: True} for name in names if name in first}


def _topic(tool: CompiledTool, action: Action) -> dict[str, Any]:
    """Fields of what the tool is about: what its name ends in, else a plain word of its name or description."""
    words, described = tokens(tool.name), tokens(tool.description[:200])[:_DESCRIBING]
    if action.verb == "read" and action.kind in ("file", "document"):
        return {"content": {"type": "string"}, "updated_at": {"type": "string"}}
    plain = [singular(word) for word in reversed(words)]
    before_tail = next((word for word in plain if word not in _TAILS), "")
    sure = [word for word in (*plain, *map(singular, described)) if word not in _AMBIGUOUS]
    for word in (action.kind, before_tail, *sure):
        names = _TOPICS.get(word)
        if word == "stock":
            about_goods = not _GOODS_WORDS.isdisjoint((*words, *described, *_parameter_words(tool)))
            names = _STOCK_OF_GOODS if about_goods else _STOCK_OF_COMPANY
        if names:
            return {name: {"type": _type(name)} for name in names}
    return {"name": {"type": "string"}, "status": {"type": "string"}}


def _type(name: str) -> str:
    return "integer" if name in _WHOLE else "number" if name in _NUMERIC else "string"


def _parameter_words(tool: CompiledTool) -> list[str]:
    return [word for name in tool.parameters.schema.get("properties", {}) for word in tokens(name)]
