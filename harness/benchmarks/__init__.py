"""The benchmarks there are, by the name that ``--tasks`` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.benchmarks import toucan
from harness.benchmarks.task import Metric, Task, TaskOptions
from verl_slca.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """A line of the registry.

    Attributes:
        summary: what is measured, in one sentence.
        metrics: what the task reports.
        sections: sections of the configuration file that it reads.
        load: makes the task, its data checked; raises `ConfigError` or `DataError`.
    """

    summary: str
    metrics: Mapping[str, Metric]
    sections: tuple[str, ...]
    load: Callable[[TaskOptions], Task]


TASKS: dict[str, TaskEntry] = {
    "toucan": TaskEntry(
        summary="Toucan-Test, or any rows in its schema: tools simulated by SGLS, calls and answer scored by HierR.",
        metrics=toucan.METRICS,
        sections=toucan.SECTIONS,
        load=toucan.Toucan.load,
    ),
}


def load_tasks(names: str, options: TaskOptions) -> list[Task]:
    """The tasks of a comma-separated list, loaded.

    Raises:
        ConfigError: a name that is unknown or given twice, no name at all, or settings that no task reads.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise ConfigError(f"--tasks is empty. Allowed: {', '.join(TASKS)}")
    for name in wanted:
        if name not in TASKS:
            raise ConfigError(f"--tasks: unknown task {name!r}. Allowed: {', '.join(TASKS)}")
        if wanted.count(name) > 1:
            raise ConfigError(f"--tasks: {name!r} is given twice")
    sections = [section for name in wanted for section in TASKS[name].sections]
    for section in options.settings:
        if section not in sections:
            raise ConfigError(
                f"--config: no task reads the section {section!r}. Allowed: limits, {', '.join(sections)}"
            )
    return [TASKS[name].load(options) for name in wanted]
