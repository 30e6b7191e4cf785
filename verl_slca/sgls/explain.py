"""jsonschema's errors -> what a policy is told: the field, its value, what would have been allowed.

The wording is ours and fixed, so that the same mistake reads the same in every rollout and with every
version of jsonschema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from jsonschema import ValidationError

MAX_VALUE_CHARS = 60
_MAX_CHOICES = 12


@dataclass(frozen=True, slots=True, order=True)
class ArgumentError:
    """One thing that is wrong with the arguments of a call.

    Attributes:
        path: the field, e.g. ``"route.stops[2].name"``; "" for the arguments as a whole.
        value: JSON text of what was given, cut to `MAX_VALUE_CHARS`; "" when nothing was.
        message: what is allowed, e.g. ``"must be an integer"``.
    """

    path: str
    value: str
    message: str

    def __str__(self) -> str:
        given = f", got {self.value}" if self.value else ""
        return f"{self.path or 'arguments'}: {self.message}{given}"


def explained(errors: Iterable[ValidationError]) -> list[ArgumentError]:
    """Every distinct argument error, ordered by path."""
    return sorted({found for error in errors for found in _explain(error)})


def cut_json(value: Any, limit: int = MAX_VALUE_CHARS) -> str:
    """`value` as JSON text, the middle cut out when it is longer than `limit` characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else f"{text[: limit // 2]}...{text[-(limit // 4) :]}"


def _explain(error: ValidationError) -> Iterator[ArgumentError]:
    keyword = str(error.validator)
    if keyword in ("anyOf", "oneOf") and error.context:
        yield from _alternatives(error)
        return
    say = _MESSAGES.get(keyword)
    message = say(error.validator_value) if say else str(error.message)[:200]
    if error.validator is None:
        message = "is not allowed"
    if keyword == "required" and isinstance(error.schema, dict):
        wanted = described(error.schema.get("properties", {}).get(error.absolute_path[-1], True))
        message += f" ({wanted})" if wanted != "any value" else ""
    absent = keyword in ("required", "dependentRequired")
    yield ArgumentError(path_text(error.absolute_path), "" if absent else cut_json(error.instance), message)


def _alternatives(error: ValidationError) -> Iterator[ArgumentError]:
    """The errors of the one alternative that was meant, if that can be told; else what the alternatives are."""
    branches: dict[int, list[ValidationError]] = {}
    for inner in error.context or ():
        if not inner.schema_path:  # of the alternative `false`, which is never meant
            continue
        branches.setdefault(int(inner.schema_path[0]), []).append(inner)
    meant = [
        inner
        for inner in branches.values()
        if not any(not one.relative_path and one.validator in ("type", "enum", "const", None) for one in inner)
    ]
    if len(meant) == 1:
        for inner in meant[0]:
            yield from _explain(inner)
        return
    if meant:
        firsts = [str(min(found for one in inner for found in _explain(one))) for inner in meant[:4]]
        message = "must satisfy one of these: " + " | ".join(dict.fromkeys(firsts))
    else:
        message = "must be " + described({"anyOf": error.validator_value})
    yield ArgumentError(path_text(error.absolute_path), cut_json(error.instance), message[:300])


def described(schema: Any) -> str:
    """What `schema` accepts, in a few words.

    Example:
        >>> described({"type": ["integer", "null"], "minimum": 1})
        'integer or null'
        >>> described({"type": "array", "items": {"enum": ["a", "b"]}})
        'array of "a" or "b"'
    """
    if schema is False:
        return "nothing"
    if not isinstance(schema, dict) or not schema:
        return "any value"
    if "const" in schema:
        return cut_json(schema["const"])
    if "enum" in schema:
        return _choices(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            possible = [branch for branch in schema[key] if branch is not False]
            return " or ".join(dict.fromkeys(map(described, possible[:_MAX_CHOICES]))) or "nothing"
    types = schema.get("type", "object" if "properties" in schema or "$ref" in schema else "any value")
    if types == "array" and isinstance(schema.get("items"), dict):
        return f"array of {described(schema['items'])}"
    return " or ".join(types) if isinstance(types, list) else str(types)


def path_text(path: Iterable[str | int]) -> str:
    """A JSON path as a reader writes it.

    Example:
        >>> path_text(["route", "stops", 2, "name"])
        'route.stops[2].name'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part[:60]}"
    return text.removeprefix(".")


def _choices(values: Any) -> str:
    shown = [cut_json(value, 40) for value in values[:_MAX_CHOICES]]
    more = len(values) - len(shown)
    if more:
        return f"{', '.join(shown)} or {more} more"
    return f"{', '.join(shown[:-1])} or {shown[-1]}" if len(shown) > 1 else "".join(shown)


def _counted(noun: str, bound: str) -> Callable[[Any], str]:
    return lambda n: f"must have at {bound} {n} {noun}{'' if n == 1 else 's'}"


_MESSAGES: dict[str, Callable[[Any], str]] = {
    "type": lambda types: f"must be {described({'type': types})}",
    "enum": lambda values: f"must be {_choices(values)}",
    "const": lambda value: f"must be {cut_json(value)}",
    "minimum": lambda bound: f"must be at least {bound}",
    "maximum": lambda bound: f"must be at most {bound}",
    "exclusiveMinimum": lambda bound: f"must be greater than {bound}",
    "exclusiveMaximum": lambda bound: f"must be less than {bound}",
    "minLength": _counted("character", "least"),
    "maxLength": _counted("character", "most"),
    "minItems": _counted("item", "least"),
    "maxItems": _counted("item", "most"),
    "minProperties": _counted("field", "least"),
    "maxProperties": _counted("field", "most"),
    "format": lambda name: f"must be a valid {name}",
    "contains": lambda schema: f"must contain {described(schema)}",
    "not": lambda schema: f"must not be {described(schema)}",
    "oneOf": lambda branches: "must fit exactly one of its alternatives, but fits several",
    "items": lambda schema: "has too many items",
    "unevaluatedProperties": lambda schema: "has fields that are not allowed",
    "unevaluatedItems": lambda schema: "has too many items",
}
