"""A JSON Schema 2020-12 validator whose every run ends: a work budget, timed regexes, no network.

Built from `jsonschema`'s own keywords. Replaced are those that search with `re` or read more naturally
with one error per property; all are counted against one budget, since references and combinators can
multiply the work far beyond the size of schema and instance.
"""

from __future__ import annotations

import datetime
import difflib
import ipaddress
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend

from verl_slca.sgls.patterns import SEARCH_SECONDS, search

MAX_WORK = 100_000
"""Keyword evaluations (plus the length of each list or map they go through) in one validation."""

Keyword = Callable[[Any, Any, Any, Any], Any]


class SchemaLimitError(Exception):
    """No verdict within the limits: work, regex time or recursion."""


class _Budget(threading.local):
    left = 0
    seconds = 0.0


_budget = _Budget()


def start_budget() -> None:
    """Give the calling thread `MAX_WORK`, and `SEARCH_SECONDS` for patterns, for its next validation."""
    _budget.left = MAX_WORK
    _budget.seconds = SEARCH_SECONDS


def _counted(check: Keyword) -> Keyword:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        kind = type(value)
        _budget.left -= 1 + len(value) if kind is list or kind is dict else 1
        if _budget.left < 0:
            raise SchemaLimitError(f"more than {MAX_WORK} validation steps")
        return check(validator, value, instance, schema)

    return counted


def matches(pattern: str, text: str) -> bool:
    """Whether `pattern` matches anywhere in `text`. Raises `SchemaLimitError` when that takes too long."""
    started = time.process_time()
    try:
        return search(pattern, text, max(_budget.seconds, 1e-6))
    except TimeoutError as error:
        raise SchemaLimitError(f"pattern {pattern[:80]!r} took too long") from error
    finally:
        _budget.seconds -= time.process_time() - started


_PLAIN_TYPES: dict[Any, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def _plain_types(name: Any) -> tuple[type, ...]:
    return _PLAIN_TYPES.get(name, ()) if type(name) is str else ()


_MORE_THAN_TYPE = set(Draft202012Validator.VALIDATORS) - {"type"}


def _properties(validator: Any, properties: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for name, child in properties.items():
        if name in instance:
            value = instance[name]
            # Most properties assert a type and nothing else; making a validator for each costs ten times this.
            if (
                type(child) is dict
                and type(value) in _plain_types(child.get("type"))
                and child.keys().isdisjoint(_MORE_THAN_TYPE)
            ):
                continue
            yield from validator.descend(value, child, path=name, schema_path=name)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not matches(pattern, instance):
        yield ValidationError(f"must match the pattern {pattern[:100]}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, child in patterns.items():
            for key, value in instance.items():
                if matches(pattern, key):
                    yield from validator.descend(value, child, path=key, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict) or allowed is True:
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", ())
    for key, value in instance.items():
        if key in known or any(matches(pattern, key) for pattern in patterns):
            continue
        if allowed is False:
            near = difflib.get_close_matches(key[:100], known, n=1)
            hint = f", did you mean {near[0]}?" if near else f", allowed: {', '.join(list(known)[:12]) or 'none'}"
            yield ValidationError(f"is not a known parameter{hint}", path=[key], instance=value)
        else:
            yield from validator.descend(value, allowed, path=key)


def _required(validator: Any, names: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for name in names:
            if name not in instance:
                yield ValidationError("is required", path=[name])


def _dependent_required(validator: Any, needs: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for name, needed in needs.items():
            for other in needed if name in instance else ():
                if other not in instance:
                    yield ValidationError(f"is required when {name} is given", path=[other])


def _multiple_of(validator: Any, factor: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # Exact on the decimal text: in binary floats 0.3 is not a multiple of 0.1.
    if validator.is_type(instance, "number") and Fraction(str(instance)) % Fraction(str(factor)):
        yield ValidationError(f"must be a multiple of {factor}")


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if wanted and isinstance(instance, list) and len(set(map(canonical_json, instance))) < len(instance):
        yield ValidationError("must not repeat an item")


def canonical_json(value: Any) -> str:
    """One text per JSON value: keys sorted, no spaces, ASCII, whole floats as integers."""
    return json.dumps(whole_numbers(value), sort_keys=True, separators=(",", ":"))


def whole_numbers(value: Any) -> Any:
    """`value` with every float that is a whole number made an integer: JSON does not tell 2.0 from 2."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: whole_numbers(child) for key, child in value.items()}
    if isinstance(value, list):
        return [whole_numbers(child) for child in value]
    return value


FORMATS = FormatChecker(formats=())
"""Formats that are enforced. The set is fixed, where jsonschema's own depends on what else is installed."""


def _format(name: str, parse: Callable[[str], object]) -> None:
    def check(instance: object) -> bool:
        if isinstance(instance, str):
            parse(instance)
        return True

    FORMATS.checks(name, raises=ValueError)(check)


def _matching(pattern: str) -> Callable[[str], None]:
    program = re.compile(pattern)

    def parse(text: str) -> None:
        if not program.fullmatch(text):
            raise ValueError(text)

    return parse


def _uri(text: str) -> None:
    if not urlsplit(text).scheme or " " in text:
        raise ValueError(text)


_format("date", lambda text: datetime.datetime.strptime(text, "%Y-%m-%d"))
_format("date-time", datetime.datetime.fromisoformat)
_format("time", datetime.time.fromisoformat)
_format("email", _matching(r"[^@\s]+@[^@\s]+"))
_format("ipv4", ipaddress.IPv4Address)
_format("ipv6", ipaddress.IPv6Address)
_format("uuid", uuid.UUID)
_format("uri", _uri)

BoundedValidator: Any = extend(
    Draft202012Validator,
    {
        name: _counted(check)
        for name, check in {
            **Draft202012Validator.VALIDATORS,
            "properties": _properties,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
            "required": _required,
            "dependentRequired": _dependent_required,
            "multipleOf": _multiple_of,
            "uniqueItems": _unique_items,
        }.items()
    },
    format_checker=FORMATS,
)
"""`Draft202012Validator` with the replacements above; call `start_budget` before each use."""
