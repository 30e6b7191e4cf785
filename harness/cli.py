"""`slca-eval`: score a checkpoint or an endpoint, and read what came out.

Exit codes: 0 done; 1 some samples failed for reasons not the model's, or its server cannot be reached;
2 the command cannot be carried out as given; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from harness import environments
from harness.benchmarks.registry import TASKS
from harness.policy import Sampling
from harness.report import print_runs
from harness.run import DEFAULT_CONCURRENCY, DEFAULT_RETRIES, DEFAULT_TIMEOUT, RunOptions
from harness.run import run as run_tasks
from harness.serving import ServingConfig
from verl_slca.config import parse, read_yaml
from verl_slca.episode import Limits
from verl_slca.errors import ConfigError, InfrastructureFault, SlcaError

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)
_SAMPLING = Sampling()
_BfclVersion = Annotated[str | None, typer.Option(help="BFCL's release: v4 or v3.")]


@app.command()
def setup(names: Annotated[list[str], typer.Argument(help="Benchmarks: bfcl, tau2.")]) -> None:
    """Make the environments of their own that benchmarks run in; once, it needs a package index."""
    environments.setup(names, Console())


@app.command()
def run(
    model: Annotated[str, typer.Option(help="Hugging Face folder, or URL of an OpenAI-compatible server (…/v1).")],
    tasks: Annotated[
        str, typer.Option(help=f"Comma-separated: {', '.join(TASKS)}; parts of one as bfcl:live,multiple.")
    ],
    output_dir: Annotated[Path, typer.Option(help="Run folder; give the same one to go on.")],
    data: Annotated[Path | None, typer.Option(help="Rows for toucan: .parquet or .jsonl.")] = None,
    model_name: Annotated[str | None, typer.Option(help="The model's name at the server.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only so many samples per task, drawn with the seed.")] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = _SAMPLING.temperature,
    max_tokens: Annotated[
        int, typer.Option(help="Response tokens: toucan's of a sample, all turns; bfcl's and tau2's of one reply.")
    ] = _SAMPLING.max_tokens,
    max_turns: Annotated[
        int | None,
        typer.Option(
            help=f"Model turns of a toucan sample, {Limits().max_turns} if not set; bfcl has its own limit, tau2's is "
            "max_steps of its section."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Base of every seed.")] = _SAMPLING.seed,
    concurrency: Annotated[int, typer.Option(help="Samples in flight.")] = DEFAULT_CONCURRENCY,
    timeout: Annotated[float, typer.Option(help="Seconds one request may take.")] = DEFAULT_TIMEOUT,
    retries: Annotated[int, typer.Option(help="Times a failed request is sent again.")] = DEFAULT_RETRIES,
    config: Annotated[
        Path | None, typer.Option(help="YAML with sections of settings; `slca-eval ls tasks` names them.")
    ] = None,
    bfcl_version: _BfclVersion = None,
) -> None:
    """Play every sample of the tasks against the model and score it. Run again, it goes on where it stopped."""
    settings = read_yaml(config) if config else {}
    if bfcl_version is not None:
        settings["bfcl"] = {**(settings.get("bfcl") or {}), "version": bfcl_version}
    serving = parse(ServingConfig, settings.pop("serving", None), "serving")
    limits = settings.pop("limits", None) or {}
    if max_turns is not None:
        limits = {**limits, "max_turns": max_turns}
    try:
        options = RunOptions(
            model=model,
            tasks=tasks,
            output_dir=output_dir,
            model_name=model_name,
            data=data,
            limit=limit,
            sampling=Sampling(temperature, max_tokens, seed),
            limits=parse(Limits, limits, "limits"),
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            settings=settings,
            serving=serving,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error
    try:
        complete = run_tasks(options, Console())
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped. Run the same command again to go on.")
        raise typer.Exit(130) from None
    if not complete:
        raise typer.Exit(1)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several are shown side by side.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown instead of a drawn table.")] = False,
    html: Annotated[
        bool, typer.Option("--html", help="Write report.html into each folder, samples to browse.")
    ] = False,
) -> None:
    """Show the results of finished runs."""
    if not html:
        print_runs(runs, Console(), markdown)
        return
    from harness.html import write_html

    for folder in runs:
        print(write_html(folder))


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="Run folder of the one.")],
    b: Annotated[Path, typer.Argument(help="Run folder of the other; differences are b - a.")],
    flips: Annotated[str | None, typer.Option(help="List every sample that flipped in this metric.")] = None,
) -> None:
    """Compare two runs of the same data sample by sample: difference, interval, p-value, flips."""
    from harness.compare import compare_runs

    compare_runs(a, b, flips, Console())


@app.command()
def rescore(
    folder: Annotated[Path, typer.Argument(help="Run folder.")],
    config: Annotated[Path | None, typer.Option(help="YAML with sections of settings in place of the run's.")] = None,
    data: Annotated[Path | None, typer.Option(help="Where the rows are now, if they were moved.")] = None,
) -> None:
    """Score a run again from its saved outputs, without a model, into FOLDER/rescored; say what changed."""
    from harness.rescore import rescore as score_again

    if not score_again(folder, read_yaml(config) if config else None, data, Console()):
        raise typer.Exit(1)


@app.command()
def selfcheck(
    tasks: Annotated[str | None, typer.Option(help="As for run; all that are set up if not given.")] = None,
    output_dir: Annotated[Path | None, typer.Option(help="New folder to keep the runs in.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only so many samples per task.")] = None,
    data: Annotated[Path | None, typer.Option(help="Rows for toucan in place of the built-in ones.")] = None,
    bfcl_version: _BfclVersion = None,
) -> None:
    """Play scripted models of known scores through the whole path, and check every score. Needs no model."""
    from harness.selfcheck import selfcheck as check

    settings = {"bfcl": {"version": bfcl_version}} if bfcl_version else {}
    with tempfile.TemporaryDirectory() if output_dir is None else contextlib.nullcontext(output_dir) as folder:
        if not check(tasks, Path(folder), limit, data, settings, Console()):
            raise typer.Exit(1)


@app.command()
def ls(what: Annotated[str, typer.Argument(help="What to list: tasks.")] = "tasks") -> None:
    """List the tasks and what each of their numbers means."""
    if what != "tasks":
        raise ConfigError(f"ls: {what!r} cannot be listed. Allowed: tasks")
    console = Console()
    for name, entry in TASKS.items():
        console.print(f"[bold]{name}[/bold]  {entry.summary}")
        for metric, column in entry.metrics.items():
            console.print(f"  {metric:<20} {column.meaning}", highlight=False)
        for subset, meaning in entry.subsets.items():
            console.print(f"  {f'{name}:{subset}':<20} {meaning}", highlight=False)
        if entry.sections:
            console.print(f"  sections of --config: {', '.join(entry.sections)}", highlight=False)


def main() -> None:
    """Entry point: an error of the user's or of a server is one message, not a traceback."""
    stderr = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        app()
    except InfrastructureFault as fault:
        stderr.print(f"[red]error:[/red] {escape(str(fault))}")
        sys.exit(1)
    except SlcaError as error:
        stderr.print(f"[red]error:[/red] {escape(str(error))}")
        sys.exit(2)
