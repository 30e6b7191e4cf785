"""A number or a text that is valid under a schema and looks like what its field is called."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

from verl_slca.sgls import patterns, samples
from verl_slca.sgls.conjunction import DeadEndError

MAX_LENGTH = 2000
_SPAN = 100
"""Width of the range that is drawn from where a schema bounds a number on one side only."""


def number(node: Mapping[str, Any], name: str, rng: random.Random, whole: bool) -> float:
    """A number within the bounds of `node`.

    Raises:
        DeadEndError: no multiple of the step lies within the bounds.
    """
    low, high, decimals = _range(node, name)
    step = node.get("multipleOf", 1 if whole else None)
    if step:
        return _multiple(node, low, high, math.ceil(step) if whole else step, rng)
    if 0 < high - low < 1:  # enough decimals to tell values of a narrow range apart
        decimals = max(decimals, 2 - math.floor(math.log10(high - low)))
    value = min(max(round(rng.uniform(low, high), decimals), low), high)
    return value if decimals else int(value)


def text(node: Mapping[str, Any], name: str, rng: random.Random) -> str:
    """A text of the pattern, format and length that `node` asks for.

    Raises:
        DeadEndError: no such text can be made.
    """
    if len(node) == 1:  # only a type, as most fields have
        return samples.text(name, rng)
    low, high = int(node.get("minLength", 0)), int(node.get("maxLength", MAX_LENGTH))
    if not low <= high or low > 10 * MAX_LENGTH:
        raise DeadEndError
    if "pattern" in node:
        sample = patterns.sample(node["pattern"], rng, low, high)
        if sample is None:
            raise DeadEndError
        return sample
    formatted = samples.formatted(node["format"], rng) if "format" in node else None
    if formatted is not None:
        return formatted
    drawn = samples.text(name, rng)
    while len(drawn) < low:
        drawn += f" {samples.text('', rng)}"
    return drawn[:high].strip() if low == 0 else drawn[:high]


def _range(node: Mapping[str, Any], name: str) -> tuple[float, float, int]:
    """Lowest, highest and decimals: what the name suggests, as far as the schema's bounds leave that open."""
    low, high, decimals = samples.number_range(name)
    floor = max(node.get("minimum", -math.inf), node.get("exclusiveMinimum", -math.inf))
    ceiling = min(node.get("maximum", math.inf), node.get("exclusiveMaximum", math.inf))
    low, high = max(low, floor), min(high, ceiling)
    bounded_twice = -math.inf < floor <= ceiling < math.inf
    if low >= high or bounded_twice:
        low = floor if floor > -math.inf else ceiling - _SPAN
        high = ceiling if ceiling < math.inf else floor + _SPAN
    return low, high, decimals


def _multiple(node: Mapping[str, Any], low: float, high: float, step: float, rng: random.Random) -> float:
    first, last = math.ceil(low / step), math.floor(high / step)
    if first * step == node.get("exclusiveMinimum"):
        first += 1
    if last * step == node.get("exclusiveMaximum"):
        last -= 1
    if first > last:
        raise DeadEndError
    return rng.randint(first, last) * step
