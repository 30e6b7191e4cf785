"""The official simulator as a process, and how to ask it: a connection per simulation, a line of JSON each way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.benchmarks.tau2.installation import Installation, environ
from verl_slca.errors import ConfigError, InfrastructureFault

Ask = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""A job to its answer (`worker`); raises `InfrastructureFault` when there is none: ``"tau2_timeout"`` after the job's
``seconds``, else ``"tau2_worker"``."""

_START_SECONDS = 300.0
_GRACE_SECONDS = 30.0
_LONGEST_LINE = 1 << 30
_LONGEST_SOCKET = 100
_SHORTEST_KEY = 8


@contextlib.asynccontextmanager
async def started(installation: Installation, endpoints: Mapping[str, str]) -> AsyncIterator[Ask]:
    """Enter to get the function that asks; any number may be asked at a time, each runs in a process of its own.

    Args:
        installation: what to run.
        endpoints: environment variables that say where litellm finds its models, keys included.

    Raises:
        ConfigError: the package cannot be loaded; its last lines are in the message.
    """
    # A socket's path has to be short.
    parent = "/tmp" if len(tempfile.gettempdir()) > _LONGEST_SOCKET - 30 else None
    with tempfile.TemporaryDirectory(prefix="slca-tau2-", dir=parent, ignore_cleanup_errors=True) as folder:
        socket, log = Path(folder, "socket"), Path(folder, "stderr")
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *(str(installation.python), "-sP", "-m", "worker", "serve", str(socket), *installation.domains),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env=environ(**endpoints),
                start_new_session=True,
            )
        try:
            await _wait_until_ready(process, installation, log)
            keys = [value for name, value in endpoints.items() if name.endswith("_KEY") and len(value) >= _SHORTEST_KEY]
            yield lambda job: _ask(socket, log, job, keys)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _wait_until_ready(process: asyncio.subprocess.Process, installation: Installation, log: Path) -> None:
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), _START_SECONDS)
    except TimeoutError as error:
        raise InfrastructureFault("tau2_worker", f"not ready after {_START_SECONDS:.0f} s: {_tail(log)}") from error
    if not line:
        raise ConfigError(f"{installation.python}: the tau2-bench there cannot be loaded: {_tail(log)}")
    data = json.loads(line)["ready"]
    if Path(data).resolve() != Path(installation.data).resolve():
        raise ConfigError(f"tau2-bench reads its data from {data}, but {installation.data} was checked")


async def _ask(socket: Path, log: Path, job: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    started_at = time.monotonic()
    try:
        reader, writer = await asyncio.open_unix_connection(socket, limit=_LONGEST_LINE)
    except OSError as error:
        raise InfrastructureFault("tau2_worker", f"it does not listen: {error}; {_tail(log)}") from error
    try:
        writer.write(json.dumps(job).encode() + b"\n")
        # The process keeps the time of its job; this is for one that is itself stuck.
        line = await asyncio.wait_for(reader.readline(), job["seconds"] + _GRACE_SECONDS)
    except (TimeoutError, OSError):
        line = b""
    finally:
        writer.close()
    if line.endswith(b"\n"):
        for key in keys:  # a server may repeat it in an error
            line = line.replace(key.encode(), b"***")
        answer: dict[str, Any] = json.loads(line)
        return answer
    if time.monotonic() - started_at >= job["seconds"]:
        raise InfrastructureFault("tau2_timeout", f"no end after {job['seconds']:g} s; see sample_seconds")
    raise InfrastructureFault("tau2_worker", f"the simulation's process ended: {_tail(log)}")


def _tail(log: Path) -> str:
    return " / ".join(log.read_text(errors="replace").strip().splitlines()[-3:])[-2000:]
