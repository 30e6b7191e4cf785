"""`slca`: the project's own commands, from data to a trained checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from verl_slca.errors import SlcaError

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)


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
    data: Annotated[list[Path], typer.Argument(help="Files in the RL row schema: .parquet, .jsonl or .json.")],
    model: Annotated[
        Path | None, typer.Option(help="Checkpoint whose tokenizer and chat template to check with.")
    ] = None,
    max_prompt_length: Annotated[int | None, typer.Option(help="Longest prompt in tokens, tools included.")] = None,
    convert_to: Annotated[
        Path | None, typer.Option(help="Convert raw Toucan rows and write RL rows here (.parquet).")
    ] = None,
) -> None:
    """Check dataset files before training: every problem is named with its file, row, column and fix."""
    from verl_slca.prepare import prepare_files

    prepare_files(data, model, max_prompt_length, convert_to)


def main() -> None:
    """Entry point: a mistake of the user's is one message and exit code 2."""
    try:
        app()
    except SlcaError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
