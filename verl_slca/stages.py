"""A pipeline of commands that can be stopped at any moment and started again.

Each stage is one subprocess with a log of its own. A finished stage leaves a receipt holding what it was
asked to do; the next run skips it if it is asked the same, and refuses to mix if it is asked something else.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from verl_slca.errors import ConfigError, SlcaError

POLL_SECONDS = 1.0
PROGRESS_SECONDS = 10.0


class StageError(SlcaError):
    """A stage's command exited with an error, or took too long; the message names its log.

    Args:
        message: all there is to say.
        reason: the same in one line.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message, reason)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class Stage:
    """One command of a pipeline.

    Attributes:
        name: also names its log and its receipt.
        title: what it does, in words for the person watching.
        command: the argv.
        env: variables added to the environment.
        progress: the current state in a few words, "" when there is none yet; shown at most every 10 seconds.
        optional: seconds it may take for what the pipeline can do without: when they are over, or the command fails,
            one line says so and the next stage starts; the next run tries again. None: it has to succeed.
    """

    name: str
    title: str
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[], str] = lambda: ""
    optional: float | None = None


def run_stages(stages: Sequence[Stage], directory: Path, console: Console) -> None:
    """Every stage done, in order, the finished ones not repeated.

    Args:
        stages: the pipeline.
        directory: receipts go to ``directory/stages``, logs to ``directory/logs``.
        console: where progress lines go.

    Raises:
        ConfigError: a receipt says a stage was done with another command.
        StageError: a command failed.
    """
    for folder in ("stages", "logs"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    for number, stage in enumerate(stages, 1):
        heading = f"[{number}/{len(stages)}] {stage.title}"
        receipt = directory / "stages" / f"{stage.name}.json"
        asked = {"command": list(stage.command), "env": dict(stage.env)}
        if receipt.exists():
            done = json.loads(receipt.read_text())
            if done["asked"] != asked:
                raise ConfigError(
                    f"{receipt}: {stage.name} was done with other settings "
                    f"({shlex.join(done['asked']['command'])}); use another output directory or remove this one"
                )
            console.print(f"{heading}: done before ({done['seconds']:.0f} s)")
            continue
        started = time.monotonic()
        try:
            _run(stage, directory / "logs" / f"{stage.name}.log", heading, console)
        except StageError as error:
            if stage.optional is None:
                raise
            console.print(f"{heading}: left out. {error.reason}", markup=False)
            continue
        seconds = time.monotonic() - started
        temporary = receipt.with_suffix(".tmp")
        temporary.write_text(json.dumps({"asked": asked, "seconds": seconds}))
        temporary.replace(receipt)
        console.print(f"{heading}: done in {seconds:.0f} s")


def _run(stage: Stage, log: Path, heading: str, console: Console) -> None:
    console.print(f"{heading} ... (log: {log})")
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(stage.command),
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **stage.env},
            start_new_session=stage.optional is not None,
        )
        try:
            shown, next_line = "", 0.0
            end = time.monotonic() + (float("inf") if stage.optional is None else stage.optional)
            while process.poll() is None:
                if time.monotonic() > end:
                    raise StageError(f"{stage.name} took too long", f"Not done in {stage.optional:.0f} s; see {log}")
                time.sleep(POLL_SECONDS)
                if time.monotonic() >= next_line and (state := stage.progress()) and state != shown:
                    shown, next_line = state, time.monotonic() + PROGRESS_SECONDS
                    console.print(f"    {state}", markup=False)
        except BaseException:
            _terminate(process, group=stage.optional is not None)
            raise
    if process.returncode != 0:
        lines = log.read_text(errors="replace").splitlines()
        said = next((line for line in reversed(lines) if line.startswith("error:")), lines[-1] if lines else "")
        tail = "\n".join(lines[-15:])
        raise StageError(
            f"{stage.name} exited with {process.returncode}; the end of {log}:\n{tail}", f"{said} (log: {log})"
        )


def _terminate(process: subprocess.Popen[bytes], group: bool) -> None:
    """End a stage's process and, where it leads a group of its own, the children that would outlive it."""
    if group:
        os.killpg(process.pid, signal.SIGTERM)
    else:
        process.terminate()
    process.wait(timeout=30)


def python_command(*argv: str | Path | int) -> list[str]:
    """An argv that runs Python code with this very interpreter."""
    return [sys.executable, *map(str, argv)]
