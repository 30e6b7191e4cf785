"""The benchmarks there are, by the name that ``--tasks`` takes."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from harness.benchmarks import toucan, toucan_gold
from harness.benchmarks.bfcl import categories as bfcl_categories
from harness.benchmarks.bfcl import gold as bfcl_gold
from harness.benchmarks.bfcl import task as bfcl
from harness.benchmarks.task import Gold, Metric, Task, TaskOptions
from harness.benchmarks.tau2 import gold as tau2_gold
from harness.benchmarks.tau2 import task as tau2
from verl_slca.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """A line of the registry.

    Attributes:
        summary: what is measured, in one sentence.
        metrics: what the task reports.
        sections: sections of the configuration file that it reads.
        load: makes the task, its data checked; raises `ConfigError` or `DataError`.
        subsets: what may follow the name (``bfcl:live``), and what each holds; empty where the task has no parts.
        gold: models whose scores are known, for ``slca-eval selfcheck``.
    """

    summary: str
    metrics: Mapping[str, Metric]
    sections: tuple[str, ...]
    load: Callable[[TaskOptions], Task]
    subsets: Mapping[str, str] = field(default_factory=dict)
    gold: Gold | None = None


TASKS: dict[str, TaskEntry] = {
    "toucan": TaskEntry(
        summary="Toucan-Test, or any rows in its schema: tools simulated by SGLS, calls and answer scored by HierR.",
        metrics=toucan.METRICS,
        sections=toucan.SECTIONS,
        load=toucan.Toucan.load,
        gold=toucan_gold.GOLD,
    ),
    "bfcl": TaskEntry(
        summary="BFCL V4 or V3 by the official checker; without subsets its single-turn part and relevance.",
        metrics=bfcl.METRICS,
        sections=bfcl.SECTIONS,
        load=bfcl.Bfcl.load,
        subsets=bfcl_categories.SUBSETS,
        gold=bfcl_gold.GOLD,
    ),
    "tau2": TaskEntry(
        summary="tau2-bench by its official simulator and evaluator; without subsets airline, retail and telecom.",
        metrics=tau2.METRICS,
        sections=tau2.SECTIONS,
        load=tau2.Tau2.load,
        subsets=tau2.SUBSETS,
        gold=tau2_gold.GOLD,
    ),
}


def parse_tasks(text: str) -> dict[str, tuple[str, ...]]:
    """The subsets asked for by task, () for a whole task, in the order given.

    Tasks are separated by commas, and so are the subsets behind a task's colon: what is no task's name goes on
    with the list of the task before it.

    Raises:
        ConfigError: a name that is unknown or given twice, or no name at all.

    Example:
        >>> parse_tasks("toucan")
        {'toucan': ()}
    """
    wanted: dict[str, list[str]] = {}
    listing = ""
    for token in (part.strip() for part in text.split(",")):
        if not token:
            continue
        name, colon, subset = (part.strip() for part in token.partition(":"))
        if name in TASKS:
            if name in wanted:
                raise ConfigError(f"--tasks: {name!r} is given twice")
            wanted[name], listing = [], name if colon else ""
            if not colon:
                continue
        elif listing and not colon:
            subset = name
        else:
            raise ConfigError(f"--tasks: unknown task {name!r}. Allowed: {', '.join(TASKS)}.{_nearest(name, TASKS)}")
        wanted[listing].append(_checked_subset(listing, subset, wanted[listing]))
    if not wanted:
        raise ConfigError(f"--tasks is empty. Allowed: {', '.join(TASKS)}")
    return {name: tuple(subsets) for name, subsets in wanted.items()}


def _checked_subset(task: str, subset: str, before: list[str]) -> str:
    known = TASKS[task].subsets
    if not known:
        raise ConfigError(f"--tasks: {task} has no subsets, got {subset!r}")
    if subset not in known:
        nearest = _nearest(subset, {**TASKS, **known})
        raise ConfigError(f"--tasks: {subset!r} is no subset of {task}. Allowed: {', '.join(known)}.{nearest}")
    if subset in before:
        raise ConfigError(f"--tasks: {task}:{subset} is given twice")
    return subset


def _nearest(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def load_tasks(names: str, options: TaskOptions) -> list[Task]:
    """The tasks of a ``--tasks`` list, loaded.

    Raises:
        ConfigError: see `parse_tasks`; settings that no task reads.
    """
    wanted = parse_tasks(names)
    sections = [section for entry in TASKS.values() for section in entry.sections]
    for section in options.settings:
        if section not in sections:
            known = dict.fromkeys(["limits", "serving", *sections])
            nearest = _nearest(section, known)
            raise ConfigError(f"--config: no task reads the section {section!r}. Allowed: {', '.join(known)}.{nearest}")
    return [TASKS[name].load(dataclasses.replace(options, subsets=subsets)) for name, subsets in wanted.items()]
