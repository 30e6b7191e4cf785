"""How far a run is: a live bar with rate and time left on a terminal, a line about every tenth elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from harness.records import Status

_LINES = 10


class TaskProgress:
    """Progress of one task; enter it, then call `finished` once per sample.

    Args:
        console: where to show it.
        name: the task.
        done: samples finished in earlier runs.
        total: the whole set.
    """

    def __init__(self, console: Console, name: str, done: int, total: int) -> None:
        self._console, self._name, self._before, self._total = console, name, done, total
        self._count = 0
        self._statuses: Counter[Status] = Counter()
        self._started = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._row = self._bar.add_task(name, total=total, completed=done, note="")

    def finished(self, status: Status) -> None:
        """One more sample ended, in that way."""
        self._count += 1
        self._statuses[status] += 1
        self._bar.update(self._row, advance=1, note=self._note())
        shown, left = self._tenth(self._count - 1), self._total - self._before - self._count
        if not self._console.is_terminal and (self._tenth(self._count) > shown or left == 0):
            remaining = left * self._seconds() / self._count
            done = self._before + self._count
            self._console.print(
                f"{self._name}: {done}/{self._total} ({100 * done // self._total} %), {self._note()}, "
                f"{remaining:.0f} s left",
                highlight=False,
                soft_wrap=True,
            )

    def _tenth(self, count: int) -> int:
        return (self._before + count) * _LINES // self._total

    def _seconds(self) -> float:
        return max(time.monotonic() - self._started, 1e-9)

    def _note(self) -> str:
        bad = "".join(f", {n} {status}" for status, n in sorted(self._statuses.items()) if status != "ok")
        return f"{self._count / self._seconds():.1f}/s{bad}"

    def __enter__(self) -> TaskProgress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()
