"""Two runs held against each other sample by sample: what differs, how surely, and which samples flipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from harness.benchmarks.registry import TASKS
from harness.benchmarks.task import Metric
from harness.journal import Samples, saved_run
from harness.metrics import Difference, paired
from harness.records import SCORED, differences
from harness.report import print_table
from verl_slca.errors import ConfigError

_SHOWN = 10
_ALL = "all"


@dataclass(frozen=True, slots=True)
class TaskScores:
    """What one run has of a task.

    Attributes:
        kinds: sample id to kind, of every sample with a record.
        scores: sample id to scores, of those that were scored.
    """

    kinds: Mapping[str, str]
    scores: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Row:
    """One metric over one group of paired samples; a is the first run, b the second.

    Attributes:
        group: ``"all"`` or a kind.
        a: mean of the first run over the pairs.
        b: mean of the second run over the pairs.
        difference: b - a, None with fewer than two pairs.
        up: ids that are higher in b, in order.
        down: ids that are lower in b, in order.
        n: pairs.
    """

    group: str
    metric: str
    a: float
    b: float
    difference: Difference | None
    up: tuple[str, ...]
    down: tuple[str, ...]
    n: int


def compare_runs(a: Path, b: Path, flips: str | None, console: Console) -> None:
    """Show how the run in `b` differs from the run in `a`, task by task.

    Args:
        a: the first run folder.
        b: the second.
        flips: metric whose flipped samples are all listed; None lists the first few of the first metric.
        console: where to show it.

    Raises:
        ConfigError: no task in common, other data or other scoring, or a metric that neither has.
        DataError: a folder that is no run, or is torn.
    """
    (first, samples_a), (second, samples_b) = saved_run(a), saved_run(b)
    tasks_a, tasks_b = first["asked"]["tasks"], second["asked"]["tasks"]
    common = [task for task in tasks_a if task in tasks_b]
    if not common:
        raise ConfigError(f"nothing to compare: {a} has {', '.join(tasks_a)}, {b} has {', '.join(tasks_b)}")
    for task in common:
        _refuse_unequal(task, tasks_a[task], tasks_b[task])
    columns = {task: TASKS[task].metrics for task in common if task in TASKS}
    if flips is not None and not any(flips in metrics for metrics in columns.values()):
        known = dict.fromkeys(name for metrics in columns.values() for name in metrics)
        raise ConfigError(f"--flips: {flips!r} is no metric of these runs. Allowed: {', '.join(known)}")
    console.print(
        f"a: {_described(a, first)}\nb: {_described(b, second)}", markup=False, highlight=False, soft_wrap=True
    )
    asked_a, asked_b = ({k: v for k, v in c["asked"].items() if k not in ("tasks", "model")} for c in (first, second))
    for key, values in differences(asked_a, asked_b).items():
        console.print(
            f"[yellow]Asked differently:[/yellow] {escape(f'{key}: {values[0]!r} in a, {values[1]!r} in b')}",
            soft_wrap=True,
        )
    for task, metrics in columns.items():
        in_a, in_b = scores_of(samples_a, task), scores_of(samples_b, task)
        rows = compare_scores(in_a, in_b, metrics)
        _show(task, rows, metrics, console)
        for line in unpaired(in_a, in_b):
            console.print(f"[yellow]{line}[/yellow]", soft_wrap=True)
        _show_flips(rows, flips, console)


def scores_of(samples: Samples, task: str) -> TaskScores:
    """The scores of a task, out of the samples of a run."""
    kinds, scores = {}, {}
    for record in samples.records(task):
        kinds[record.id] = record.kind
        if record.status in SCORED:
            scores[record.id] = record.scores
    return TaskScores(kinds, scores)


def compare_scores(a: TaskScores, b: TaskScores, metrics: Mapping[str, Metric]) -> list[Row]:
    """Every metric over all pairs, and the shares (or the first metric, if there is no share) within each kind.

    A pair is a sample that both runs scored, with that metric in both.
    """
    pairs = sorted(a.scores.keys() & b.scores.keys())
    by_kind: dict[str, list[str]] = {}
    for sample in pairs:
        by_kind.setdefault(a.kinds[sample], []).append(sample)
    shares = [name for name, metric in metrics.items() if metric.kind == "share"] or list(metrics)[:1]
    wanted = [(_ALL, name, pairs) for name in metrics]
    if len(by_kind) > 1:
        wanted += [(kind, name, by_kind[kind]) for kind in sorted(by_kind) for name in shares]
    rows = (_row(group, name, ids, a.scores, b.scores) for group, name, ids in wanted)
    return [row for row in rows if row.n]


def unpaired(a: TaskScores, b: TaskScores) -> list[str]:
    """What was left out of the comparison, in words; empty when everything was paired."""
    lines = []
    for name, one, other in (("a", a, b), ("b", b, a)):
        if lonely := len(one.kinds.keys() - other.kinds.keys()):
            lines.append(f"Left out: {lonely} samples that only {name} has.")
        failed = (one.kinds.keys() - one.scores.keys()) & other.kinds.keys()
        if failed:
            lines.append(f"Left out: {len(failed)} samples that failed in {name} for reasons not the model's.")
    return lines


def _row(
    group: str,
    name: str,
    ids: Sequence[str],
    a: Mapping[str, Mapping[str, float]],
    b: Mapping[str, Mapping[str, float]],
) -> Row:
    both = [sample for sample in ids if name in a[sample] and name in b[sample]]
    left, right = ({sample: side[sample][name] for sample in both} for side in (a, b))
    n = len(both)
    return Row(
        group,
        name,
        sum(left.values()) / n if n else 0.0,
        sum(right.values()) / n if n else 0.0,
        paired(left, right) if n > 1 else None,
        tuple(sample for sample in both if right[sample] > left[sample]),
        tuple(sample for sample in both if right[sample] < left[sample]),
        n,
    )


def _refuse_unequal(task: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    if unequal := differences(a, b):
        lines = "\n".join(f"  {key}: {left!r} in a, {right!r} in b" for key, (left, right) in unequal.items())
        raise ConfigError(
            f"{task}: the two runs have other data or other scoring, so their samples are not pairs:\n{lines}\n"
            "Score one of them again with the other's settings (slca-eval rescore), or run it again."
        )


def _described(folder: Path, config: Mapping[str, Any]) -> str:
    model = config["asked"]["model"]
    return f"{folder} ({model['name']})"


def _show(task: str, rows: Sequence[Row], metrics: Mapping[str, Metric], console: Console) -> None:
    cells = [["", "a", "b", "b - a", "95 % interval", "p", "up", "down", "n"]]
    for row in rows:
        name = row.metric if row.group == _ALL else f"{row.group}: {row.metric}"
        cells.append([name, *_numbers(row, metrics[row.metric].kind == "share"), *_counts(row)])
    print_table(f"{task}, over pairs", cells, console)
    console.print("p: exact McNemar for shares, paired t else; each line for itself, not corrected for their number.")


def _numbers(row: Row, share: bool) -> list[str]:
    scale, digits, unit = (100, 2, " %") if share else (1, 3, "")
    means = [f"{scale * row.a:.{digits}f}{unit}", f"{scale * row.b:.{digits}f}{unit}"]
    if (d := row.difference) is None:
        return [*means, "-", "-", "-"]
    interval = f"[{scale * d.low:+.{digits}f}, {scale * d.high:+.{digits}f}]"
    return [*means, f"{scale * d.value:+.{digits}f}", interval, f"{d.p:.3g}"]


def _counts(row: Row) -> list[str]:
    return [str(len(row.up)), str(len(row.down)), str(row.n)]


def _show_flips(rows: Sequence[Row], flips: str | None, console: Console) -> None:
    overall = [row for row in rows if row.group == _ALL]
    for row in overall if flips is None else [row for row in overall if row.metric == flips]:
        for word, ids in (("up", row.up), ("down", row.down)):
            shown = ids if flips is not None else ids[:_SHOWN]
            more = f" and {len(ids) - len(shown)} more (--flips {row.metric})" if len(shown) < len(ids) else ""
            console.print(
                f"{row.metric} {word}: {', '.join(shown) or 'none'}{more}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
        return
