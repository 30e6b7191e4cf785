"""Does the harness still measure what it says? Scripted models of known scores, through the whole path.

For every benchmark and each of its scripts: a server on loopback whose model follows the script, the normal
`run` against it, and every score of every sample held against what it must be.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.benchmarks.registry import TASKS, parse_tasks
from harness.benchmarks.task import TaskOptions
from harness.environments import NotMadeError
from harness.journal import Samples
from harness.policy import Sampling
from harness.records import SCORED
from harness.run import RunOptions, run
from harness.scripted_server import NAME, ScriptedServer
from verl_slca.episode import Limits
from verl_slca.errors import ConfigError

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Check:
    """One metric of one script.

    Attributes:
        expected: its mean over the samples played, as it must be.
        got: its mean over those that were scored, None where none was.
        differing: the samples whose value is another, with both values in words.
    """

    metric: str
    expected: float
    got: float | None
    differing: tuple[str, ...]


def selfcheck(
    tasks: str | None,
    folder: Path,
    limit: int | None,
    data: Path | None,
    settings: Mapping[str, Any],
    console: Console,
) -> bool:
    """True when every script of every task scores what it must; shows a table per task.

    Args:
        tasks: as for `run`; None takes all, and passes over those whose environment is not set up.
        folder: new or empty; a run folder per task and script is made in it.
        limit: samples per task.
        data: rows for toucan in place of the built-in ones.
        settings: sections of the configuration, beside those that a task's gold needs.
        console: where to show it.

    Raises:
        ConfigError: the folder is in use, or a task has no gold or cannot be loaded.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--output-dir: {folder} is not empty; selfcheck starts afresh, take another one")
    right = True
    for name, subsets in parse_tasks(tasks or ",".join(TASKS)).items():
        wanted = f"{name}:{','.join(subsets)}" if subsets else name
        gold = TASKS[name].gold
        if gold is None:
            raise ConfigError(f"selfcheck: {name} has no gold to check with")
        (folder / name).mkdir(parents=True)
        rows = data or gold.data(folder / name)
        with ScriptedServer() as server:
            sections = {**settings, **gold.settings(server.url)}
            try:
                task = TASKS[name].load(TaskOptions(rows, Limits(), Sampling().seed, sections, subsets))
            except NotMadeError as error:
                if tasks is not None:
                    raise
                console.print(f"[yellow]{name}: not checked.[/yellow] {escape(str(error))}", soft_wrap=True)
                continue
            checks = {}
            for script, server.script in gold.scripts(task).items():
                run_folder = folder / name / script
                options = RunOptions(server.url, wanted, run_folder, NAME, rows, limit, retries=0, settings=sections)
                run(options, Console(file=io.StringIO()))
                checks[script] = _compared(run_folder, gold.expected(task, script))
        right = _show(wanted, checks, console) and right
    console.print("As expected." if right else "[red]NOT as expected.[/red]")
    return right


def _compared(folder: Path, expected: Mapping[str, Mapping[str, float]]) -> list[Check]:
    wanted: dict[str, list[float]] = {}
    got: dict[str, list[float]] = {}
    differing: dict[str, list[str]] = {}
    for record in Samples(folder / "samples.jsonl").records():
        for metric, value in expected[record.id].items():
            wanted.setdefault(metric, []).append(value)
            if record.status in SCORED:
                got.setdefault(metric, []).append(record.scores[metric])
                if math.isclose(record.scores[metric], value, abs_tol=1e-9):
                    continue
                said = f"{record.scores[metric]:g}, {value:g} expected"
            else:
                said = f"no score: {record.fault}: {record.reason}"
            differing.setdefault(metric, []).append(f"{record.id}: {said}")
    return [
        Check(metric, _mean(values), _mean(got[metric]) if metric in got else None, tuple(differing.get(metric, ())))
        for metric, values in wanted.items()
    ]


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _show(title: str, checks: Mapping[str, list[Check]], console: Console) -> bool:
    table = Table(title=title, title_justify="left")
    for heading in ("script", "metric"):
        table.add_column(heading, no_wrap=True)
    for heading in ("expected", "got", "verdict"):
        table.add_column(heading, justify="right", no_wrap=True)
    wrong: list[str] = []
    for script, each in checks.items():
        for check in each:
            verdict = f"[red]{len(check.differing)} differ[/red]" if check.differing else "ok"
            got = "-" if check.got is None else f"{check.got:.4f}"
            table.add_row(script, check.metric, f"{check.expected:.4f}", got, verdict)
            wrong += [f"{script}, {check.metric}: {said}" for said in check.differing[:_SHOWN]]
        if not each:
            table.add_row(script, "-", "-", "-", "nothing expected")
    console.print(table)
    for line in wrong:
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    return not wrong
