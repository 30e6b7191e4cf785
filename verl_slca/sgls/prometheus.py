"""The simulator's figures for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from verl_slca.sgls.figures import BOUNDS, Figures


def exposition(figures: Figures, episodes: Callable[[], int]) -> Callable[[], bytes]:
    """A function that writes `figures`, as they are then, in Prometheus' text format.

    Args:
        figures: of the simulator.
        episodes: number of episodes that are open.
    """
    registry = CollectorRegistry()
    registry.register(_Collector(figures, episodes))
    return lambda: generate_latest(registry)


class _Collector(Collector):
    def __init__(self, figures: Figures, episodes: Callable[[], int]) -> None:
        self._figures = figures
        self._episodes = episodes

    def collect(self) -> Iterator[Metric]:
        calls = CounterMetricFamily("sgls_calls", "Calls by tool and outcome.", labels=("tool", "outcome"))
        hits = CounterMetricFamily("sgls_cache_hits", "Answers out of the cache.", labels=("tool",))
        tokens = CounterMetricFamily("sgls_tokens", "Tokens that a model read and wrote.", labels=("tool",))
        for name, tool in sorted(self._figures.tools.items()):
            for outcome in ("valid", "invalid", "unknown", "faults"):
                calls.add_metric((name, outcome), getattr(tool, outcome))
            hits.add_metric((name,), tool.cached)
            tokens.add_metric((name,), tool.tokens)
        yield from (calls, hits, tokens)
        total = self._figures.total()
        for group, what in (
            ("source", "Answers by backend."),
            ("passed", "Backends that had no answer, by fault."),
            ("injected", "API errors injected on purpose, by kind."),
            ("fault", "Real faults, by kind."),
        ):
            family = CounterMetricFamily(f"sgls_{group}", what, labels=("kind",))
            for kind, count in sorted(total.kinds.items()):
                if kind.startswith(f"{group}/"):
                    family.add_metric((kind.partition("/")[2],), count)
            yield family
        latency = HistogramMetricFamily("sgls_latency_seconds", "Wall time of a call.")
        latency.add_metric((), _cumulative(total.latency), total.seconds)
        yield latency
        yield GaugeMetricFamily("sgls_episodes", "Open episodes.", value=self._episodes())


def _cumulative(latency: Counter[int]) -> list[tuple[str, float]]:
    seen, found = 0, []
    for bucket, bound in enumerate(BOUNDS):
        seen += latency.get(bucket, 0)
        if bucket % 4 == 0:  # a third of a decade is fine enough on a chart
            found.append((f"{bound:.3g}", float(seen)))
    return [*found, ("+Inf", float(latency.total()))]
