"""The official result files: ``python -m harness.benchmarks.bfcl export RUN FOLDER`` and ``... score FOLDER``."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from harness.benchmarks.bfcl.files import read_results, write_results, written
from harness.benchmarks.bfcl.task import Bfcl
from harness.benchmarks.task import TaskOptions
from harness.journal import saved_run
from verl_slca.episode import Limits
from verl_slca.errors import ConfigError, SlcaError

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="A run folder with BFCL samples.")],
    folder: Annotated[Path, typer.Argument(help="Of the model: result/NAME, where NAME is known to `bfcl`.")],
) -> None:
    """Write a run's answers as the official command reads them (`bfcl evaluate`)."""
    config, samples = saved_run(run)
    made = config["asked"]["tasks"].get("bfcl")
    if made is None:
        raise ConfigError(f"{run} holds no BFCL samples")
    task = _task(made["version"], made["mode"], ("all",))
    paths = write_results(task, samples.records("bfcl"), folder)
    for path in paths:
        print(path)


@app.command()
def score(
    folder: Annotated[Path, typer.Argument(help="A model's folder of official result files.")],
    version: Annotated[str, typer.Option(help="v4 or v3.")] = "v4",
    mode: Annotated[str, typer.Option(help="fc or prompt: how the answers were made.")] = "fc",
) -> None:
    """Score official result files with the official checker, and count as the official command does."""
    task = _task(version, mode, written(folder, version))
    results = read_results(task, folder)
    right: dict[str, int] = defaultdict(int)
    for id, correct in asyncio.run(task.official_verdicts(results)).items():
        right[task.kind(id)] += correct
    for kind, count in Counter(map(task.kind, results)).items():
        print(f"{kind:<24} {100 * right[kind] / count:6.2f} %  {right[kind]}/{count}")


def _task(version: str, mode: str, subsets: tuple[str, ...]) -> Bfcl:
    return Bfcl.load(TaskOptions(None, Limits(), 0, {"bfcl": {"version": version, "mode": mode}}, subsets))


if __name__ == "__main__":
    try:
        app()
    except SlcaError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"error: {error}", markup=False)
        raise SystemExit(2) from None
