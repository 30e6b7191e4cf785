"""Processes of the official scorer, and how to ask them: one line of JSON out, one line back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_slca.errors import InfrastructureFault

Job = Mapping[str, Any]
Answer = dict[str, Any]

_START_SECONDS = 120.0
_LONGEST_LINE = 1 << 30
_CHUNK = 64


class Pool:
    """Asks workers, started when they are first needed; leave it through `opened`.

    Args:
        python: BFCL's own interpreter.
        seconds: longest that one job may take.
        megabytes: most memory that one job may use.
        size: most workers at a time.
        folder: where they run, and where their errors go.
    """

    def __init__(self, python: Path, seconds: float, megabytes: int, size: int, folder: Path) -> None:
        self._command = [str(python), "-sP", "-m", "worker", str(seconds), str(megabytes)]
        self._seconds, self._folder = seconds, folder
        self._idle: list[asyncio.subprocess.Process] = []
        self._slots = asyncio.Semaphore(size)

    async def ask(self, job: Job) -> Answer:
        """The answer to one job.

        Raises:
            InfrastructureFault: the worker failed for a reason of ours (``"bfcl_worker"``).
        """
        return (await self.ask_all([job]))[0]

    async def ask_all(self, jobs: Sequence[Job]) -> list[Answer]:
        """One answer per job, in order; the workers share them."""
        chunks = [jobs[start : start + _CHUNK] for start in range(0, len(jobs), _CHUNK)]
        return [answer for part in await asyncio.gather(*map(self._ask, chunks)) for answer in part]

    async def _ask(self, jobs: Sequence[Job]) -> list[Answer]:
        async with self._slots:
            worker = self._idle.pop() if self._idle else await self._start()
            try:
                answers = await self._exchange(worker, jobs)
            except BaseException:
                await _end(worker)
                raise
            self._idle.append(worker)
        for answer in answers:
            if "raised" in answer:
                raise InfrastructureFault("bfcl_worker", answer["raised"])
        return answers

    async def _exchange(self, worker: asyncio.subprocess.Process, jobs: Sequence[Job]) -> list[Answer]:
        assert worker.stdin is not None
        worker.stdin.write(json.dumps(list(jobs)).encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await worker.stdin.drain()
        # The worker keeps the time of its jobs; this is for a worker that is itself stuck.
        return await self._line(worker, _START_SECONDS + 2 * self._seconds * len(jobs))

    async def _start(self) -> asyncio.subprocess.Process:
        # No keys, no proxies, nothing of the user's: what a model wrote is executed in there.
        environment = {
            "BFCL_PROJECT_ROOT": str(self._folder),
            "HOME": str(self._folder),
            "LANG": "C.UTF-8",
            "PATH": os.defpath,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": str(Path(__file__).parent),
            "TMPDIR": str(self._folder),
            "TZ": "UTC",
        }
        pipe = asyncio.subprocess.PIPE
        with (self._folder / "stderr").open("ab") as errors:
            worker = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=pipe,
                stdout=pipe,
                stderr=errors,
                cwd=self._folder,
                env=environment,
                limit=_LONGEST_LINE,
            )
        try:
            await self._line(worker, _START_SECONDS)
        except BaseException:
            await _end(worker)
            raise
        return worker

    async def _line(self, worker: asyncio.subprocess.Process, seconds: float) -> Any:
        assert worker.stdout is not None
        try:
            line = await asyncio.wait_for(worker.stdout.readline(), seconds)
        except TimeoutError as error:
            raise InfrastructureFault("bfcl_worker", f"no answer within {seconds:.0f} s") from error
        if not line.endswith(b"\n"):
            tail = (self._folder / "stderr").read_text(errors="replace").strip().splitlines()[-3:]
            raise InfrastructureFault("bfcl_worker", " / ".join(["it ended", *tail]))
        return json.loads(line)

    async def close(self) -> None:
        """End every worker."""
        for worker in self._idle:
            await _end(worker)
        self._idle.clear()


@contextlib.asynccontextmanager
async def opened(python: Path, seconds: float, megabytes: int) -> AsyncIterator[Pool]:
    """A pool while entered, in a temporary folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="slca-bfcl-", ignore_cleanup_errors=True) as folder:
        pool = Pool(python, seconds, megabytes, min(4, os.cpu_count() or 1), Path(folder))
        try:
            yield pool
        finally:
            await pool.close()


async def _end(worker: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        worker.kill()
    await worker.wait()
