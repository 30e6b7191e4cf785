"""Counts that add up over processes, in bounded memory."""

from __future__ import annotations

import json
import random

import pytest

from verl_slca.sgls import figures
from verl_slca.sgls.backends import BackendResponse
from verl_slca.sgls.figures import OTHER, UNKNOWN, Figures, ToolFigures, from_dict, metrics, to_dict


def one(seconds: float = 0.01, **response: object) -> ToolFigures:
    counts = ToolFigures()
    counts.answered(BackendResponse("x", **response))  # type: ignore[arg-type]
    counts.took(seconds)
    return counts


def test_percentiles_are_right_to_a_third():
    draw = random.Random(0)
    seconds = sorted(draw.lognormvariate(-3, 1.5) for _ in range(2000))
    counts = ToolFigures()
    for value in seconds:
        counts.took(value)
    for share in (0.1, 0.5, 0.95, 0.99):
        true = seconds[round(share * len(seconds)) - 1]
        assert true <= counts.percentile(share) <= true * 1.34


def test_without_calls_there_is_no_latency_and_no_metric():
    assert ToolFigures().percentile(0.5) == 0.0
    assert metrics([{}, {}]) == {}


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e6])
def test_times_beyond_the_buckets_are_counted_in_the_outermost(seconds):
    assert figures.BOUNDS[0] <= one(seconds).percentile(0.5) <= figures.BOUNDS[-1]


def test_figures_travel_as_json_and_add_up():
    parts = [one(0.001, source="llm", tokens=30), one(2.0, source="rules", cached=True, injected="empty")]
    failed = ToolFigures()
    failed.failed("simulator_timeout")
    failed.took(5.0)
    total, travelled = ToolFigures(), ToolFigures()
    for part in (*parts, failed):
        total.add(part)
        travelled.add(from_dict(json.loads(json.dumps(to_dict(part)))))
    assert travelled == total
    assert (total.calls, total.valid, total.cached, total.tokens, total.injected, total.faults) == (3, 2, 1, 30, 1, 1)
    assert total.kinds["fault/simulator_timeout"] == total.kinds["source/llm"] == 1


def test_the_metrics_of_a_step_are_totals():
    found = metrics([to_dict(one(0.01, source="llm", tokens=5)), to_dict(one(1.0, source="rules", cached=True))])
    named = ("calls", "valid_share", "cache_hits", "tokens", "source/llm", "source/rules")
    assert [found[f"sgls/{name}"] for name in named] == [2, 1, 1, 5, 1, 1]


def test_the_number_of_tools_that_are_told_apart_is_limited(monkeypatch):
    monkeypatch.setattr(figures, "MAX_TOOLS", 2)
    counts = Figures()
    for name in ("a", "b", "c", "d", UNKNOWN, "a"):
        counts.add(name, one())
    assert {name: tool.calls for name, tool in counts.tools.items()} == {"a": 2, "b": 1, OTHER: 2, UNKNOWN: 1}
