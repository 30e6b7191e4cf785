"""Pass^k: the share of tasks that k of k trials would solve, over every task and trial there is."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.benchmarks.tau2.floor import Floor
from harness.records import SCORED, Record


def pass_hat_k(trials: int, successes: int, k: int) -> float:
    """The chance that k trials drawn from these without replacement all succeeded (arXiv:2406.12045).

    Example:
        >>> pass_hat_k(4, 2, 1), pass_hat_k(4, 2, 2), pass_hat_k(4, 4, 4)
        (0.5, 0.16666666666666666, 1.0)
    """
    return math.comb(successes, k) / math.comb(trials, k)


def aggregates(
    tasks: Mapping[str, Sequence[str]], trials: int, records: Iterable[Record], floors: Mapping[str, Floor | None]
) -> dict[str, Any]:
    """Pass^1 to pass^trials of each domain, how far its trials differ, its floor, and the mean of the domains.

    A value is None where any of the domain's samples has no score: a mean over the rest could be anything.

    Args:
        tasks: domain to its tasks' ids.
        trials: of each task.
        records: one per finished sample.
        floors: what an agent that does nothing scores, by domain; None where it is not known.
    """
    rewards: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    lost: dict[str, int] = defaultdict(int)
    calls: dict[str, float] = defaultdict(float)
    for record in records:
        if record.status in SCORED:
            rewards[record.kind][task_of(record.id)].append(record.scores["reward"])
            calls[record.kind] += record.scores["tool_calls"]
        else:
            lost[record.kind] += 1
    values: dict[str, Any] = {}
    notes: list[str] = []
    for domain, ids in tasks.items():
        scored = sum(map(len, rewards[domain].values()))
        complete = all(len(rewards[domain][id]) == trials for id in ids)
        for k in range(1, trials + 1):
            values[f"pass^{k} {domain}"] = _share(
                [pass_hat_k(trials, round(sum(rewards[domain][id])), k) for id in ids] if complete else None
            )
        if complete and trials > 1:
            values[f"sd between trials {domain}"] = _between_trials([rewards[domain][id] for id in ids])
        floor = floors[domain]
        if floor is not None:
            values[f"floor {domain}"] = {"kind": "share", "value": len(floor.sure) / len(ids)}
            if floor.judged:
                most = len(floor.sure | floor.judged)
                notes.append(f"{domain}: the floor is up to {most} of {len(ids)} with a lenient judge.")
        if not complete:
            missing = f", {lost[domain]} lost to faults that are not the model's" if lost[domain] else ""
            notes.append(f"{domain}: no pass^k, {scored} of {len(ids) * trials} simulations are scored{missing}.")
        if scored and not calls[domain]:
            notes.append(f"{domain}: not one tool call in {scored} simulations; does the server take tool calls apart?")
    if len(tasks) > 1:
        for k in range(1, trials + 1):
            each = [values[f"pass^{k} {domain}"]["value"] for domain in tasks]
            values[f"pass^{k}"] = {"kind": "share", "value": None if None in each else statistics.fmean(each)}
    return {**values, "notes": notes}


def task_of(id: str) -> str:
    """The task of a sample id ``domain/task/trial``.

    Example:
        >>> task_of("telecom/[mms_issue]a|b/c[PERSONA:None]/3")
        '[mms_issue]a|b/c[PERSONA:None]'
    """
    return id.split("/", 1)[1].rsplit("/", 1)[0]


def _share(values: Sequence[float] | None) -> dict[str, Any]:
    """A mean over tasks with its standard error: tasks are what is sampled, the trials of one are not independent."""
    if values is None:
        return {"kind": "share", "value": None}
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"kind": "share", "value": statistics.fmean(values), "stderr": error}


def _between_trials(each: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Standard deviation of the score between trials; `each` is a task's rewards by trial."""
    return {"kind": "share", "value": statistics.stdev(map(statistics.fmean, zip(*each, strict=True)))}
