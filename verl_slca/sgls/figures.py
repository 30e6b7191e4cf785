"""What a simulator has done, counted per tool: plain sums, so that figures of many processes add up.

Memory is bounded: latencies fall into a fixed set of buckets, and no more than `MAX_TOOLS` names are told apart.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from verl_slca.sgls.backends import BackendResponse

UNKNOWN = "(unknown)"
"""Where calls of tools that do not exist are counted, so that invented names cannot fill the memory."""
OTHER = "(other)"
"""Where tools are counted once there are `MAX_TOOLS` of them."""
MAX_TOOLS = 10_000

BOUNDS = tuple(1e-4 * 10 ** (step / 8) for step in range(57))
"""Upper bounds of the latency buckets, in seconds: 0.1 ms to 1000 s, each a third above the one before."""


@dataclass(slots=True)
class ToolFigures:
    """Counts of one tool.

    Attributes:
        calls: all calls; the sum of the four below.
        valid: answered by the backend, an injected API error included.
        unknown: no such tool.
        invalid: refused with argument errors.
        faults: ended in an `InfrastructureFault`: ours, not the policy's.
        injected: answered with an injected API error, on purpose.
        cached: answered out of the cache.
        tokens: tokens that a model read and wrote for the answers.
        seconds: wall time spent on all of them.
        kinds: how often by name: ``"source/llm"``, ``"passed/simulator_replay_miss"``, ``"injected/timeout"``,
            ``"fault/simulator_timeout"``.
        latency: calls by index of their bucket in `BOUNDS`.
    """

    calls: int = 0
    valid: int = 0
    unknown: int = 0
    invalid: int = 0
    faults: int = 0
    injected: int = 0
    cached: int = 0
    tokens: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    latency: Counter[int] = field(default_factory=Counter)

    def answered(self, response: BackendResponse) -> None:
        """Count what the backend answered to a valid call."""
        self.valid += 1
        self.tokens += response.tokens
        self.cached += response.cached
        if response.source:
            self.kinds[f"source/{response.source}"] += 1
        for kind in response.passed:
            self.kinds[f"passed/{kind}"] += 1
        if response.injected:
            self.injected += 1
            self.kinds[f"injected/{response.injected}"] += 1

    def failed(self, kind: str) -> None:
        """Count a call that ended in an infrastructure fault."""
        self.faults += 1
        self.kinds[f"fault/{kind}"] += 1

    def took(self, seconds: float) -> None:
        """Count a call and the time that it took."""
        self.calls += 1
        self.seconds += seconds
        self.latency[bisect.bisect_left(BOUNDS, seconds)] += 1

    def add(self, other: ToolFigures) -> None:
        """Add the counts of `other`."""
        for name in _NUMBERS:
            if count := getattr(other, name):
                setattr(self, name, getattr(self, name) + count)
        for kind, count in other.kinds.items():
            self.kinds[kind] += count
        for bucket, count in other.latency.items():
            self.latency[bucket] += count

    def percentile(self, share: float) -> float:
        """Seconds within which `share` of the calls were answered, to a third; 0.0 when there was none."""
        wanted, seen = share * self.latency.total(), 0
        for bucket, count in sorted(self.latency.items()):
            seen += count
            if seen >= wanted:
                return BOUNDS[min(bucket, len(BOUNDS) - 1)]
        return 0.0


_NUMBERS = tuple(one.name for one in fields(ToolFigures) if one.name not in ("kinds", "latency"))


@dataclass(slots=True)
class Figures:
    """Counts of all tools."""

    tools: dict[str, ToolFigures] = field(default_factory=dict)

    def add(self, name: str, figures: ToolFigures) -> None:
        """Add counts of one tool."""
        known = name in self.tools or name == UNKNOWN or len(self.tools) < MAX_TOOLS
        self.tools.setdefault(name if known else OTHER, ToolFigures()).add(figures)

    def total(self) -> ToolFigures:
        """The sum over all tools."""
        total = ToolFigures()
        for figures in self.tools.values():
            total.add(figures)
        return total

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """The counts as of now, by tool name: plain JSON data, detached from further counting."""
        return {name: to_dict(figures) for name, figures in sorted(self.tools.items())}


def to_dict(figures: ToolFigures) -> dict[str, Any]:
    """`figures` as plain JSON data, zeros left out."""
    plain = {one.name: getattr(figures, one.name) for one in fields(figures)}
    plain |= {"latency": {str(bucket): count for bucket, count in sorted(figures.latency.items())}}
    plain |= {"kinds": dict(sorted(figures.kinds.items()))}
    return {name: value for name, value in plain.items() if value}


def from_dict(plain: Mapping[str, Any]) -> ToolFigures:
    """The inverse of `to_dict`."""
    latency = Counter({int(bucket): count for bucket, count in plain.get("latency", {}).items()})
    return ToolFigures(**{**plain, "kinds": Counter(plain.get("kinds", {})), "latency": latency})


def metrics(rollouts: Iterable[Mapping[str, Any]], prefix: str = "sgls") -> dict[str, float]:
    """The figures of a training step as metrics; {} when no rollout made a call.

    Args:
        rollouts: the totals of each rollout, as `to_dict` wrote them.
        prefix: of every key.

    Example:
        >>> call = to_dict(ToolFigures(calls=2, valid=1, invalid=1, kinds=Counter({"source/rules": 1})))
        >>> metrics([call, call])["sgls/valid_share"], metrics([call, call])["sgls/source/rules"]
        (0.5, 2.0)
    """
    total = ToolFigures()
    for plain in rollouts:
        total.add(from_dict(plain))
    if not total.calls:
        return {}
    found = {
        "calls": total.calls,
        "valid_share": total.valid / total.calls,
        "unknown": total.unknown,
        "invalid": total.invalid,
        "faults": total.faults,
        "injected": total.injected,
        "cache_hits": total.cached,
        "tokens": total.tokens,
        "latency_p50": total.percentile(0.5),
        "latency_p95": total.percentile(0.95),
        **total.kinds,
    }
    return {f"{prefix}/{name}": float(value) for name, value in found.items()}
