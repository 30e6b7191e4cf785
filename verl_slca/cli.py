"""`slca`: the project's own commands, from data to a trained checkpoint."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from verl_slca.errors import SlcaError
from verl_slca.sgls.commands import app as simulate


class Shape(StrEnum):
    """Row schemas that `prepare` writes."""

    rl = "rl"
    sft = "sft"


app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)
app.add_typer(simulate, name="simulate")


@app.command()
def quickstart(
    output_dir: Annotated[Path, typer.Option(help="Everything goes here; run again to go on where it stopped.")] = Path(
        "outputs/quickstart"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the world, the model, SFT and RL.")] = 0,
) -> None:
    """Train a tiny model with SLCA on real verl, on this machine's CPU, and show what it learned."""
    from verl_slca.quickstart import run_quickstart

    run_quickstart(output_dir, seed)


@app.command()
def prepare(
    data: Annotated[list[Path], typer.Argument(help="RL rows to check (.parquet, .jsonl, .json).")],
    model: Annotated[Path | None, typer.Option(help="Checkpoint whose chat template renders the prompts.")] = None,
    max_prompt_length: Annotated[int | None, typer.Option(help="Longest prompt in tokens, tools included.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Convert Toucan rows of any shape into this parquet file.")
    ] = None,
    shape: Annotated[Shape, typer.Option(help="What to convert to.")] = Shape.rl,
) -> None:
    """Check dataset files before training: every problem is named with its file, row, column and fix."""
    from verl_slca.prepare import prepare_files

    prepare_files(data, model, max_prompt_length, output, shape.value)


@app.command()
def record(
    data: Annotated[Path, typer.Argument(help="Toucan rows that hold tool responses, raw or SFT.")],
    output: Annotated[Path, typer.Option(help="Recording to write (.jsonl).")],
) -> None:
    """Make a recording for the simulator's replay backend out of a dataset's own tool responses."""
    from verl_slca.sgls.recording import write_recording
    from verl_slca.toucan_recording import recorded

    entries, problems = recorded(data)
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
    write_recording(output, entries)
    print(f"{len(entries)} responses in {output}, {len(problems)} rows left out")


def main() -> None:
    """Entry point: a mistake of the user's is one message and exit code 2."""
    try:
        app()
    except SlcaError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
