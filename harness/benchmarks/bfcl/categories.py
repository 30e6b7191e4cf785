"""BFCL's categories, what `--tasks bfcl:...` may name, and how categories become the benchmark's overall numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.metrics import Estimate, proportion
from harness.records import Record
from verl_slca.errors import ConfigError

NON_LIVE = ("simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple")
LIVE = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple")
RELEVANCE = ("irrelevance", "live_irrelevance", "live_relevance")
MULTI_TURN = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")

GROUPS: dict[str, tuple[str, ...]] = {
    "non_live": NON_LIVE,
    "live": LIVE,
    "single_turn": NON_LIVE + LIVE,
    "relevance": RELEVANCE,
    "multi_turn": MULTI_TURN,
    "all": NON_LIVE + LIVE + RELEVANCE + MULTI_TURN,
}
"""What stands for several categories; relevance is a group of its own, outside live and non-live."""

DEFAULT = ("single_turn", "relevance")
"""What is played where nothing was asked for."""

SUBSETS: dict[str, str] = {
    **{group: ", ".join(parts) for group, parts in GROUPS.items()},
    **dict.fromkeys(GROUPS["all"], "one category"),
}

_V3_NAMES = {"simple_python": "simple", "simple_java": "java", "simple_javascript": "javascript"}


def file_name(category: str, version: str) -> str:
    """The category's name in that version's files and ids; ours are V4's.

    Example:
        >>> file_name("simple_java", "v3"), file_name("simple_java", "v4")
        ('java', 'simple_java')
    """
    return _V3_NAMES.get(category, category) if version == "v3" else category


def selected(subsets: Sequence[str]) -> tuple[str, ...]:
    """The categories that the subsets hold, in the benchmark's order; `DEFAULT` where there are none.

    Raises:
        ConfigError: a name that is neither a category nor a group.
    """
    wanted: set[str] = set()
    for subset in subsets or DEFAULT:
        if subset not in SUBSETS:
            raise ConfigError(f"bfcl: {subset!r} is no category or group. Allowed: {', '.join(SUBSETS)}")
        wanted.update(GROUPS.get(subset, (subset,)))
    return tuple(category for category in GROUPS["all"] if category in wanted)


def overalls(records: Iterable[Record], expected: Mapping[str, int]) -> dict[str, Any]:
    """The benchmark's overall numbers, each only where every sample of every category it needs has a score.

    Non-live is the mean of four: simple (the mean of its three languages), multiple, parallel and their mix; live is
    weighted by samples; multi-turn is a plain mean. What papers call the overall of V3's single-turn part is read in
    two ways, and both are given: A the mean of non-live and live, B the share of all single-turn samples.

    Args:
        records: of the task's samples.
        expected: number of samples of each category that was chosen.
    """
    values: dict[str, list[float]] = {}
    for record in records:
        if "accuracy" in record.scores:
            values.setdefault(record.kind, []).append(record.scores["accuracy"])
    whole = {
        category: proportion(scores) for category, scores in values.items() if len(scores) == expected.get(category)
    }
    simple = dict.fromkeys(NON_LIVE[:3], 1 / 12)
    non_live = {**simple, **dict.fromkeys(NON_LIVE[3:], 1 / 4)}
    live, single_turn = (_by_size(parts, whole) for parts in (LIVE, NON_LIVE + LIVE))
    halves = {category: weight / 2 for weights in (non_live, live) for category, weight in weights.items()}
    weights = {
        "non_live": non_live,
        "live": live,
        "overall A: mean(non_live, live)": halves,
        "overall B: share of single turn": single_turn,
        "multi_turn": dict.fromkeys(MULTI_TURN, 1 / 4),
    }
    return {name: _weighted(parts, whole) for name, parts in weights.items() if parts.keys() <= whole.keys()}


def _by_size(categories: Sequence[str], whole: Mapping[str, Estimate]) -> dict[str, float]:
    sizes = {category: whole[category].n if category in whole else 0 for category in categories}
    total = sum(sizes.values()) or 1
    return {category: size / total for category, size in sizes.items()}


def _weighted(weights: Mapping[str, float], whole: Mapping[str, Estimate]) -> dict[str, Any]:
    value = math.fsum(weight * whole[category].value for category, weight in weights.items())
    stderr = math.hypot(*(weight * whole[category].stderr for category, weight in weights.items()))
    return {"kind": "share", "value": value, "stderr": stderr, "n": sum(whole[category].n for category in weights)}
