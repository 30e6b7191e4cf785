"""An output schema for a tool that declares none: from the verb in its name and the nouns around it.

The schema depends on the tool alone, so every response of a tool has one shape.
"""

from __future__ import annotations

import functools
from typing import Any

from verl_slca.sgls.generate import COUNT, ECHO
from verl_slca.sgls.normalise import normalised
from verl_slca.sgls.samples import tokens
from verl_slca.sgls.schema import CompiledSchema, CompiledTool
from verl_slca.sgls.verbs import VERBS, adds_numbers

_TOPICS: dict[str, tuple[str, ...]] = {
    "weather": ("temperature", "condition", "humidity"),
    "forecast": ("date", "temperature", "condition"),
    "stock": ("symbol", "price", "change"),
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
    "message": ("message", "user", "created_at"),
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
    "product": ("name", "price", "rating"),
    "balance": ("amount", "currency"),
    "time": ("time", "timezone"),
}
_NUMERIC = {"temperature", "humidity", "price", "change", "rate", "volume", "latitude", "longitude", "distance",
            "duration", "rating", "year", "size", "amount"}  # fmt: skip
_MAX_ECHOES = 4


def output_of(tool: CompiledTool) -> CompiledSchema:
    """The schema that a tool's responses follow: the one it declares, else the one guessed for it."""
    return tool.output if tool.output is not None else inferred_output(tool)


@functools.lru_cache(maxsize=4096)
def inferred_output(tool: CompiledTool) -> CompiledSchema:
    """The output schema guessed for `tool`; the same object as long as the tool is in the cache."""
    words = tokens(tool.name)
    at, kind = next(((i, VERBS[word]) for i, word in enumerate(words) if word in VERBS), (-1, "get"))
    if kind == "create" and adds_numbers(tool):
        kind = "calculate"
    nouns = [word for word in words[at + 1 :] or words if len(word) > 2][-2:]
    noun = "_".join(nouns) or "result"
    echoes = dict(list(_echoes(tool.parameters.schema).items())[:_MAX_ECHOES])
    topic = _fields(tool, words)
    if kind == "list" or (kind == "get" and noun.endswith("s") and not noun.endswith("ss")):
        item = _object({"id": {"type": "string"}, **topic})
        items = {"type": "array", "items": item, COUNT: 2}
        fields = {**echoes, (noun if noun.endswith("s") else "results"): items}
    elif kind == "create":
        fields = {"success": {"const": True}, f"{nouns[-1] if nouns else 'item'}_id": {"type": "string"}, **echoes}
        fields |= {"created_at": {"type": "string", "format": "date-time"}}
    elif kind == "update":
        fields = {"success": {"const": True}, **echoes, "updated_at": {"type": "string", "format": "date-time"}}
    elif kind == "delete":
        fields = {"success": {"const": True}, **echoes, "status": {"const": "deleted"}}
    elif kind == "calculate":
        fields = {**echoes, "result": {"type": "number"}}
    elif kind == "check":
        fields = {**echoes, "valid": {"type": "boolean"}}
    else:
        fields = {**echoes, **topic}
    return CompiledSchema(normalised(_object(fields), f"tool {tool.name!r}: inferred output", arguments=False))


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    required = [name for name, field in fields.items() if not field.get(ECHO)]
    return {"type": "object", "properties": fields, "required": required}


def _echoes(parameters: dict[str, Any]) -> dict[str, Any]:
    """One field per parameter, required ones first, present only when the argument is."""
    properties = parameters.get("properties", {})
    required = [name for name in parameters.get("required", ()) if name in properties]
    return {name: {ECHO: True} for name in dict.fromkeys([*required, *properties])}


def _fields(tool: CompiledTool, words: tuple[str, ...]) -> dict[str, Any]:
    """Fields of the topic that the name, or else the description, speaks of."""
    for word in (*reversed(words), *tokens(tool.description[:200])):
        topic = _TOPICS.get(word) or _TOPICS.get(word.removesuffix("s"))
        if topic:
            return {name: {"type": "number" if name in _NUMERIC else "string"} for name in topic}
    return {"name": {"type": "string"}, "status": {"type": "string"}}
