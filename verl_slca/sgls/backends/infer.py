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
from verl_slca.sgls.things import singular

_TOPICS: dict[str, tuple[str, ...]] = {
    "weather": ("temperature", "condition", "humidity"),
    "forecast": ("date", "temperature", "condition"),
    "share": ("symbol", "price", "change"),
    "ticker": ("symbol", "price", "change"),
    "inventory": ("stock", "unit"),
    "warehouse": ("name", "city", "stock"),
    "price": ("price", "currency"),
    "quote": ("price", "change"),
    "exchange": ("rate", "currency"),
    "market": ("symbol", "price", "volume"),
    "location": ("latitude", "longitude"),
    "geocode": ("latitude", "longitude"),
    "coordinates": ("latitude", "longitude"),
    "route": ("distance", "duration"),
    "directions": ("distance", "duration"),
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
_STOCK_OF_GOODS = ("stock", "unit")
_STOCK_OF_COMPANY = ("symbol", "price", "change")
_GOODS_WORDS = {"inventory", "warehouse", "product", "products", "item", "items", "sku", "store", "quantity", "level",
                "levels", "shop", "available"}  # fmt: skip
"""Beside one of these, a stock is what a shop has of its goods, not what an exchange trades."""
_NUMERIC = {"temperature", "humidity", "price", "change", "rate", "volume", "latitude", "longitude", "distance",
            "duration", "rating", "year", "size", "amount", "balance"}  # fmt: skip
_WHOLE = {"stock", "year", "size", "humidity", "volume"}
_MAX_ECHOES = 4


def output_of(tool: CompiledTool) -> CompiledSchema:
    """The schema that a tool's responses follow: the one it declares, else the one guessed for it."""
    return tool.output if tool.output is not None else inferred_output(tool)


@functools.lru_cache(maxsize=4096)
def inferred_output(tool: CompiledTool) -> CompiledSchema:
    """The output schema guessed for `tool`; the same object as long as the tool is in the cache."""
    action = action_of(tool)
    echoes = dict(list(_echoes(tool.parameters.schema).items())[:_MAX_ECHOES])
    fields = _fields(tool, action, echoes)
    return CompiledSchema(normalised(_object(fields), f"tool {tool.name!r}: inferred output", arguments=False))


def _fields(tool: CompiledTool, action: Action, echoes: dict[str, Any]) -> dict[str, Any]:
    """The fields of a response, by what the tool does."""
    done, moment = {"success": {"const": True}}, {"type": "string", "format": "date-time"}
    if action.effect == "list":
        item = _object({"id": _IDENTIFIER, **_topic(tool, action)})
        return {**echoes, _list_name(tool, action): {"type": "array", "items": item, COUNT: 2}}
    if action.effect == "create":
        return {**done, f"{action.kind}_id": _IDENTIFIER, **echoes, "created_at": moment}
    if action.effect == "update":
        status = {"status": {"const": action.status}} if action.status else {}
        return {**done, **echoes, **status, "updated_at": moment}
    if action.effect == "delete":
        return {**done, **echoes, "status": {"const": "deleted"}}
    if action.effect == "write":
        return {**done, **echoes, "completed_at": moment}
    if action.calculates:
        return {**echoes, "result": {"type": "number"}}
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
    """One field per parameter, required ones first, present only when the argument is."""
    properties = parameters.get("properties", {})
    required = [name for name in parameters.get("required", ()) if name in properties]
    return {name: {ECHO: True} for name in dict.fromkeys([*required, *properties])}


def _topic(tool: CompiledTool, action: Action) -> dict[str, Any]:
    """Fields of the topic that the name, or else the description, speaks of."""
    words, described = tokens(tool.name), tokens(tool.description[:200])
    for word in (action.kind, *reversed(words), *described):
        names = _TOPICS.get(word) or _TOPICS.get(singular(word))
        if singular(word) == "stock":
            about_goods = not _GOODS_WORDS.isdisjoint((*words, *described, *_parameter_words(tool)))
            names = _STOCK_OF_GOODS if about_goods else _STOCK_OF_COMPANY
        if names:
            return {name: {"type": _type(name)} for name in names}
    return {"name": {"type": "string"}, "status": {"type": "string"}}


def _type(name: str) -> str:
    return "integer" if name in _WHOLE else "number" if name in _NUMERIC else "string"


def _parameter_words(tool: CompiledTool) -> list[str]:
    return [word for name in tool.parameters.schema.get("properties", {}) for word in tokens(name)]
