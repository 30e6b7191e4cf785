"""Loose equality of argument values and the assignment of predicted calls to gold calls.

The one definition of "the same value" and "the right call" for rewards and metrics alike. What the authors'
release does instead, kept for reproduction, is in `hierr.reference`.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from verl_slca.rows import GoldCall
from verl_slca.trajectory import ToolCall

_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_MAX_DIGITS = 1000


def loosely_equal(predicted: Any, gold: Any) -> bool:
    """True when two JSON values mean the same argument.

    - null equals only null; a boolean equals the same boolean or its name as text, never a number;
    - numbers, and text that writes one, are equal when they differ by less than 1e-9, absolutely and relative
      to the larger one; integers of any length are compared exactly;
    - text is compared trimmed and in lower case (accents, composition and inner blanks count);
    - lists element by element, objects key by key in any order, by these same rules.

    Method, section "HierR". The release differs (H15): true equals 1, 1e-10 equals 5e-10, a list equals its
    Python repr, "1_000" is a number, and [1] differs from [1.0].

    Example:
        >>> loosely_equal(" 10 ", 10.0), loosely_equal("TRUE", True), loosely_equal([1, {"A": "x"}], ["1", {"a": "X"}])
        (True, True, True)
        >>> loosely_equal(True, 1), loosely_equal(None, "None"), loosely_equal(["a"], "['a']")
        (False, False, False)
    """
    if predicted is None or gold is None:
        return predicted is gold
    if isinstance(predicted, list) and isinstance(gold, list):
        return len(predicted) == len(gold) and all(map(loosely_equal, predicted, gold))
    if isinstance(predicted, dict) and isinstance(gold, dict):
        return _equal_objects(predicted, gold)
    if isinstance(predicted, list | dict) or isinstance(gold, list | dict):
        return False
    if isinstance(predicted, bool) or isinstance(gold, bool):
        return _boolean(predicted) is not None and _boolean(predicted) is _boolean(gold)
    a, b = _number(predicted), _number(gold)
    if a is not None and b is not None:
        return _equal_numbers(a, b)
    return _folded(predicted) == _folded(gold)


def name_f1(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """Multiset F1 of tool names, 2|P n G| / (|P| + |G|), in [0, 1]; 1 when both are empty, 0 when one is.

    Example:
        >>> name_f1(["a", "a", "b"], ["a", "b", "b"])
        0.6666666666666666
    """
    if not predicted and not gold:
        return 1.0
    common = (Counter(predicted) & Counter(gold)).total()
    return 2.0 * common / (len(predicted) + len(gold))


def argument_scores(gold: GoldCall, call: ToolCall) -> tuple[float, float]:
    """(key, value) of one predicted call against one gold call of the same name, each in [0, 1].

    key is the Jaccard index of the two key sets, value the share of gold keys whose value is loosely equal.
    Gold without arguments: key is 0 when arguments were invented, value is 1. Gold that states the name only
    cannot be measured: 1 and 1.
    """
    if gold.arguments is None:
        return 1.0, 1.0
    if not gold.arguments:
        return float(not call.arguments), 1.0
    common = gold.arguments.keys() & call.arguments.keys()
    equal = sum(loosely_equal(call.arguments[key], gold.arguments[key]) for key in common)
    union = len(gold.arguments.keys() | call.arguments.keys())
    return len(common) / union, equal / len(gold.arguments)


def matched(gold: Sequence[GoldCall], calls: Sequence[ToolCall]) -> list[tuple[float, float] | None]:
    """(key, value) of each gold call under the best one-to-one assignment; None for a gold call left out.

    The assignment maximises the sum of key + value, then of value, so the result depends neither on the order
    of the calls nor on that of the gold (the release goes through the gold greedily, H16). Only calls of the
    same name are paired.
    """
    from scipy.optimize import linear_sum_assignment  # not at the top: a third of a second for who matches nothing

    gold_by_name: dict[str, list[int]] = defaultdict(list)
    calls_by_name: dict[str, list[int]] = defaultdict(list)
    for index, gold_call in enumerate(gold):
        gold_by_name[gold_call.name].append(index)
    for index, call in enumerate(calls):
        if call.name in gold_by_name:
            calls_by_name[call.name].append(index)
    result: list[tuple[float, float] | None] = [None] * len(gold)
    for name, columns in calls_by_name.items():
        rows = gold_by_name[name]
        scores = np.array([[argument_scores(gold[i], calls[j]) for j in columns] for i in rows])
        gain = scores.sum(axis=2) + 1e-6 * scores[:, :, 1]
        for row, column in zip(*linear_sum_assignment(gain, maximize=True), strict=True):
            result[rows[row]] = (float(scores[row, column, 0]), float(scores[row, column, 1]))
    return result


def _equal_objects(predicted: dict[str, Any], gold: dict[str, Any]) -> bool:
    ours = {_folded(key): value for key, value in predicted.items()}
    theirs = {_folded(key): value for key, value in gold.items()}
    if len(ours) < len(predicted) or len(theirs) < len(gold):
        ours, theirs = predicted, gold
    return ours.keys() == theirs.keys() and all(loosely_equal(ours[key], theirs[key]) for key in ours)


def _folded(value: Any) -> str:
    return str(value).strip().lower()


def _boolean(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(_folded(value)) if isinstance(value, str) else None


def _number(value: Any) -> int | float | None:
    if not isinstance(value, str):
        return value if isinstance(value, int | float) else None
    text = value.strip()
    if len(text) > _MAX_DIGITS:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else None


def _equal_numbers(a: int | float, b: int | float) -> bool:
    if a == b:
        return True
    if isinstance(a, int) and isinstance(b, int):
        return False
    try:
        difference, size = abs(float(a) - float(b)), max(abs(float(a)), abs(float(b)))
    except OverflowError:
        return False
    return math.isfinite(difference) and difference < 1e-9 * min(1.0, size)
