import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from bfcl_fixtures import Ask, Load, PlayOne
from rich.console import Console
from scripted_server import ScriptedServer

from harness.benchmarks.bfcl.task import Bfcl
from harness.benchmarks.task import Model, Outcome, Sample, TaskOptions
from harness.environments import setup
from harness.policy import Sampling
from verl_slca.endpoint import connect
from verl_slca.episode import Limits


@pytest.fixture(scope="session")
def load() -> Load:
    """Makes a task; the environments it needs are made first, once per machine."""
    setup(["bfcl"], Console(stderr=True))

    @functools.cache
    def make(*subsets: str, **settings: Any) -> Bfcl:
        return Bfcl.load(TaskOptions(None, Limits(), 0, {"bfcl": settings}, subsets))

    return make


@pytest.fixture(scope="session")
def ask() -> Ask:
    """The worker's answers to jobs, in one line."""

    def answers(task: Bfcl, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        async def run() -> list[dict[str, Any]]:
            async with task._pool() as pool:
                return await pool.ask_all(jobs)

        return asyncio.run(run())

    return answers


@pytest.fixture
def play(server: ScriptedServer) -> PlayOne:
    """Plays entries over HTTP against a script, the last one's outcome; the model has a name no identifier can have."""

    def run(task: Bfcl, script: Callable[[dict[str, Any]], Any], *ids: str) -> Outcome:
        server.script = script

        async def session() -> Outcome:
            client = connect(server.url, 30.0, 0)
            async with client, task.session(Model(client, "step=100", Sampling())) as one:
                outcomes = [await one(Sample(id, task.kind(id))) for id in ids]
            return outcomes[-1]

        return asyncio.run(session())

    return run
