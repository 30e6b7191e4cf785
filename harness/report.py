"""Results to tables: value ± standard error and n, on a terminal or in Markdown, one run or several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.records import read_json
from verl_slca.errors import ConfigError

Column = tuple[str, Mapping[str, Any]]
"""A heading and the group of results below it: a whole task, or one of its kinds."""

_MANY_KINDS = 6


def print_results(results: Mapping[str, Any], console: Console) -> None:
    """One table per task of a run, its kinds side by side, and what keeps the numbers from being final."""
    for task, result in results["tasks"].items():
        print_table(f"{task}: {results['model']['name']}", table_cells("", _columns(result)), console)
        for line in caveats(result):
            console.print(f"[yellow]{line}[/yellow]", soft_wrap=True)


def print_runs(folders: Sequence[Path], console: Console, markdown: bool) -> None:
    """The results in those run folders: of one run with its kinds, of several side by side.

    Raises:
        ConfigError: several runs that have no task in common.
        DataError: a folder without results.
    """
    runs = {_title(folder, folders): read_json(folder / "results.json") for folder in folders}
    first = next(iter(runs.values()))
    if len(runs) == 1 and not markdown:
        print_results(first, console)
        return
    common = [task for task in first["tasks"] if all(task in run["tasks"] for run in runs.values())]
    if not common:
        raise ConfigError("these runs have no task in common; report them one at a time")
    for task in common:
        results = {title: run["tasks"][task] for title, run in runs.items()}
        columns = _columns(first["tasks"][task]) if len(runs) == 1 else list(results.items())
        if markdown:
            print(as_markdown(task, columns))
        else:
            print_table(task, table_cells("", columns), console)
        for title, result in results.items():
            for line in caveats(result):
                print(f"\n{title}: {line}")


def print_table(title: str, cells: Sequence[Sequence[str]], console: Console) -> None:
    """The table, headings first, in as many pieces as the console is narrow; each repeats the first column."""
    names, *rest = zip(*cells, strict=True)
    while rest:
        taken = 1
        while taken < len(rest) and _width([names, *rest[: taken + 1]]) <= console.width:
            taken += 1
        table = Table(title=escape(title), title_justify="left")
        for heading, align in ((names[0], "left"), *((column[0], "right") for column in rest[:taken])):
            table.add_column(escape(heading), justify=align, no_wrap=True)  # type: ignore[arg-type]
        for row in zip(names[1:], *(column[1:] for column in rest[:taken]), strict=True):
            table.add_row(*map(escape, row))
        console.print(table)
        rest = rest[taken:]


def as_markdown(title: str, columns: Sequence[Column]) -> str:
    """The table as Markdown, the title in its corner."""
    heads, *rows = table_cells(title, columns)
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def caveats(result: Mapping[str, Any]) -> list[str]:
    """What a reader has to know before quoting the numbers of a task; empty when there is nothing."""
    samples, lines = result["samples"], []
    if result["partial"]:
        lines.append(f"Partial: {result['partial']['played']} of {result['partial']['of']} samples (--limit).")
    if not result["complete"]:
        scored = samples["ok"] + samples["truncated"] + samples["model_error"]
        faults = "".join(f", {kind} x {n}" for kind, n in sorted(result["faults"].items()))
        lines.append(
            f"Not complete: {scored} of {samples['expected']} samples scored, "
            f"{samples['infrastructure_error']} failed for reasons not the model's{faults}, "
            f"{samples['not_run']} not run. Run the same command again to go on."
        )
    lines.extend(result.get("aggregates", {}).get("notes", ()))
    return lines


def value_text(metric: Mapping[str, Any]) -> str:
    """A metric with its standard error; shares in percent.

    Example:
        >>> value_text({"kind": "share", "value": 0.766, "stderr": 0.0134})
        '76.60 % ± 1.34'
        >>> value_text({"kind": "mean", "value": 0.5, "stderr": 0.01})
        '0.500 ± 0.010'
    """
    if metric["kind"] == "share":
        return f"{100 * metric['value']:.2f} % ± {100 * metric['stderr']:.2f}"
    digits = 3 if metric["kind"] == "mean" else 2
    return f"{metric['value']:.{digits}f} ± {metric['stderr']:.{digits}f}"


def aggregate_text(value: object) -> str:
    """One of a task's own aggregates, "" when it is nothing that a table can show.

    Example:
        >>> aggregate_text({"kind": "share", "value": 0.25})
        '25.00 %'
        >>> aggregate_text(0.5)
        '0.500'
        >>> aggregate_text({"by_domain": {}})
        ''
    """
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, int | float):
        return f"{value:.3f}" if isinstance(value, float) else str(value)
    if not isinstance(value, Mapping) or value.get("kind") not in ("share", "mean", "count") or "value" not in value:
        return ""
    if value["value"] is None:
        return ""
    text = value_text({**value, "stderr": value.get("stderr") or 0.0})
    return text if value.get("stderr") is not None else text.split(" ±")[0]


def _columns(result: Mapping[str, Any]) -> list[Column]:
    kinds = result["kinds"]
    shown = sorted(kinds.items(), key=lambda item: (-item[1]["samples"]["expected"], item[0]))[:_MANY_KINDS]
    return [("all", result), *(shown if len(kinds) > 1 else [])]


def table_cells(title: str, columns: Sequence[Column]) -> list[list[str]]:
    """The rows of a table, headings first, `title` in the corner."""
    names = list(dict.fromkeys(name for _, group in columns for name in group["metrics"]))
    rows = [[title, *(head for head, _ in columns)]]
    for name in names:
        rows.append([name, *(value_text(m) if (m := g["metrics"].get(name)) else "-" for _, g in columns)])
    for name in dict.fromkeys(name for _, group in columns for name in group.get("aggregates", ())):
        shown = [aggregate_text(group.get("aggregates", {}).get(name)) for _, group in columns]
        if any(shown):
            rows.append([name, *(text or "-" for text in shown)])
    rows.append(["n", *(_count(group["samples"]) for _, group in columns)])
    for status in ("truncated", "model_error"):
        if any(group["samples"][status] for _, group in columns):
            rows.append([status, *(str(group["samples"][status]) for _, group in columns)])
    return rows


def _count(samples: Mapping[str, int]) -> str:
    scored = samples["ok"] + samples["truncated"] + samples["model_error"]
    return str(scored) if scored == samples["expected"] else f"{scored} of {samples['expected']}"


def _width(columns: Sequence[Sequence[str]]) -> int:
    return 1 + sum(3 + max(map(len, column)) for column in columns)


def _title(folder: Path, folders: Sequence[Path]) -> str:
    same = sum(other.resolve().name == folder.resolve().name for other in folders)
    return folder.resolve().name if same == 1 else str(folder)
