"""Records to results: counts of how samples ended, and every metric overall and per kind.

The denominator is the whole set. A sample without scores (an infrastructure error, or one not run) is never
a 0: it is counted, the result says that it is not complete, and the means are over those that were scored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, get_args

from harness import metrics
from harness.benchmarks.task import Metric, Sample
from harness.records import SCORED, Record, Status

_AVERAGES = {"share": metrics.proportion, "mean": metrics.mean, "count": metrics.mean}


def summarise(samples: Sequence[Sample], columns: Mapping[str, Metric], records: Iterable[Record]) -> dict[str, Any]:
    """The results of one task, JSON-ready; depends on the records' content only, not on their order.

    Args:
        samples: the whole set.
        columns: the task's metrics.
        records: one per finished sample, in order of id.
    """
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    statuses: dict[str, Counter[str]] = defaultdict(Counter)
    faults: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for record in records:
        for group in ("", record.kind):
            statuses[group][record.status] += 1
            for name, value in record.scores.items():
                scores[group][name].append(value)
        if record.fault:
            faults[record.fault] += 1
        tokens.update(asdict(record.usage))
    expected = Counter(sample.kind for sample in samples)
    whole = _group(len(samples), statuses[""], scores[""], columns)
    kinds = {kind: _group(count, statuses[kind], scores[kind], columns) for kind, count in sorted(expected.items())}
    return {**whole, "faults": dict(sorted(faults.items())), "usage": dict(tokens), "kinds": kinds}


def _group(
    expected: int, statuses: Counter[str], scores: Mapping[str, list[float]], columns: Mapping[str, Metric]
) -> dict[str, Any]:
    counts = {status: statuses[status] for status in get_args(Status)}
    scored = sum(statuses[status] for status in SCORED)
    return {
        "samples": {"expected": expected, **counts, "not_run": expected - sum(counts.values())},
        "complete": scored == expected,
        "metrics": {
            name: {"kind": column.kind, **asdict(_AVERAGES[column.kind](scores[name]))}
            for name, column in columns.items()
            if scores.get(name)
        },
    }
