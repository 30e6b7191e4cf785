"""tau2-bench's own interpreter in tests: one simulator for all, scripts by sample, and interpreters that are not it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import stat
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from harness import scripted_server
from harness.benchmarks.task import Model, Outcome, Rescore, Sample
from harness.benchmarks.tau2.simulator import Ask, started
from harness.benchmarks.tau2.task import Tau2
from harness.policy import Sampling
from harness.records import Record
from harness.scripted_server import NAME, Reply, completion_reply
from verl_slca.endpoint import connect

Script = Callable[[str, Mapping[str, Any]], Any]
KEY = "sk-never-to-be-saved"


class Server(scripted_server.ScriptedServer):
    """A script may answer with a `Reply` as well; `requests` are all bodies so far, with their samples."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, dict[str, Any]]] = []

    def answer(self, sample: str, body: dict[str, Any]) -> Reply:
        self.requests.append((sample, body))
        assert self.script is not None
        reply = self.script(sample, body)
        return reply if isinstance(reply, Reply) else completion_reply(reply, prompt=100, used=10)


class Bench:
    """A simulator that is started once, asked from a thread with a loop of its own."""

    def __init__(self, task: Tau2, server: Server) -> None:
        self.server = server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stack = contextlib.AsyncExitStack()
        self._ask: Ask = self._wait(self._enter(task))

    def play(self, task: Tau2, id: str, script: Script, retries: int = 0, **sampling: Any) -> Outcome:
        """The outcome of that sample under that script."""
        self.server.script, self.server.requests = script, []

        async def played() -> Outcome:
            async with connect(self.server.url, 30.0, retries) as client:
                model = Model(client, NAME, Sampling(**sampling))
                return await task._played(Sample(id, id.split("/")[0]), model, self._ask)

        return self._wait(played())

    def rescore(self, task: Tau2, id: str, outcome: Outcome) -> Outcome:
        """The outcome saved and scored again."""
        record = Record(
            id, "tau2", "", outcome.status, outcome.reason, outcome.fault, {}, outcome.trajectory, outcome.usage
        )
        rescore: Rescore = lambda record: task._rescored(record, self._ask)  # noqa: E731
        return self._wait(rescore(Record.from_line(record.to_line())))  # type: ignore[arg-type]

    def close(self) -> None:
        self._wait(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _enter(self, task: Tau2) -> Ask:
        async with connect(self.server.url, 30.0, 0) as client:
            client.api_key = KEY
            endpoints = task._endpoints(Model(client, NAME, Sampling()))
        return await self._stack.enter_async_context(started(task.installation, endpoints))

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(300)


def interpreter(path: Path, script: str) -> Path:
    """A file that can be called as one."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def shadowed(python: Path, folder: Path) -> Path:
    """An interpreter that finds packages in `folder` before its own."""
    return interpreter(folder / "python", f'PYTHONPATH="$PYTHONPATH:{folder}" exec "{python}" "$@"')


def a_package(folder: Path, name: str, summary: str, files: tuple[str, ...] = (), **more: str) -> None:
    """A distribution of that name with a package tau2 of empty files; `more` are files of its metadata."""
    for file in ("tau2/__init__.py", *files):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("")
    metadata = folder / f"{name.replace('-', '_')}-9.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\nSummary: {summary}\n")
    (metadata / "top_level.txt").write_text("tau2\n")
    for file, content in more.items():
        (metadata / file.replace("__", ".")).write_text(content)


def with_tasks(package: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """`package` again under `folder`, by links, with the mock domain's tasks changed."""
    changed = Path("data/tau2/domains/mock/tasks.json")
    at, source = folder / "tau2", package
    for part in changed.parts:
        at.mkdir(parents=True)
        for entry in source.iterdir():
            if entry.name != part:
                (at / entry.name).symlink_to(entry)
        at, source = at / part, source / part
    tasks = json.loads(source.read_text())
    for task in tasks:
        change(task)
    at.write_text(json.dumps(tasks))
