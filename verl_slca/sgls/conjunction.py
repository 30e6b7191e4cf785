"""Two JSON Schemas -> one that is close to both: what `generate` draws from where `allOf` and its like stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TIGHTER_WHEN_LOWER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_TIGHTER_WHEN_HIGHER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_COMBINING = ("$ref", "allOf", "anyOf", "oneOf")


class DeadEndError(Exception):
    """Nothing can satisfy this part of a schema; another choice may lead somewhere."""


def merged(left: Mapping[str, Any], right: Any) -> dict[str, Any]:
    """A schema close to the conjunction of two; whoever draws from it has to check the value.

    Raises:
        DeadEndError: no value satisfies both.
    """
    if right is False:
        raise DeadEndError
    both = dict(left)
    for key, value in ({} if right is True else right).items():
        if key not in both:
            both[key] = value
        elif key in _COMBINING:
            both["allOf"] = [*both.get("allOf", []), {key: value}]
        else:
            both[key] = _both(key, both[key], value)
    return both


def _both(key: str, left: Any, right: Any) -> Any:
    """What a keyword has to say for both of its values to hold."""
    if key == "properties":
        shared = {name: {"allOf": [left[name], child]} for name, child in right.items() if name in left}
        return {**left, **right, **shared}
    if key == "required":
        return list(dict.fromkeys([*left, *right]))
    if key == "enum":
        return [item for item in left if item in right]
    if key == "type":
        return _common_types(left, right)
    if key in _TIGHTER_WHEN_LOWER:
        return min(left, right)
    if key in _TIGHTER_WHEN_HIGHER:
        return max(left, right)
    return right


def _common_types(left: Any, right: Any) -> Any:
    sets = [{kind} if isinstance(kind, str) else set(kind) for kind in (left, right)]
    for one, other in (sets, sets[::-1]):
        if "number" in one and "integer" in other:
            one.add("integer")
    both = sorted(sets[0] & sets[1])
    if not both:
        raise DeadEndError
    return both[0] if len(both) == 1 else both
