import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from tau2_bench import KEY, Bench, Server

from harness import environments
from harness.benchmarks.task import TaskOptions
from harness.benchmarks.tau2 import gold
from harness.benchmarks.tau2.task import Tau2
from verl_slca.episode import Limits


@pytest.fixture(scope="session")
def python() -> Path:
    """tau2-bench's interpreter; it is made first, once per machine."""
    if not os.environ.get("SLCA_TAU2_PYTHON"):
        environments.setup(["tau2"], Console(stderr=True))
    return environments.python_of("tau2")


@pytest.fixture(scope="session")
def tau2_server() -> Iterator[Server]:
    with contextlib.closing(Server()) as running:
        yield running


@pytest.fixture(scope="session")
def load(python: Path, tau2_server: Server):
    """Makes a task whose other models are played by the scripted server; settings come on top."""

    def make(*domains: str, **settings: object) -> Tau2:
        mine = {} if settings.get("user") == "scripted" else gold.settings(tau2_server.url)["tau2"]
        return Tau2.load(TaskOptions(None, Limits(), 0, {"tau2": {**mine, **settings}}, domains))

    return make


@pytest.fixture(scope="session")
def task(load) -> Tau2:
    return load("mock", "airline", "retail", "telecom")


@pytest.fixture(scope="session")
def bench(task: Tau2, tau2_server: Server) -> Iterator[Bench]:
    before = os.environ.get("SLCA_TAU2_USER_KEY")
    os.environ["SLCA_TAU2_USER_KEY"] = KEY
    try:
        running = Bench(task, tau2_server)
    finally:
        os.environ.pop("SLCA_TAU2_USER_KEY")
        os.environ.update({"SLCA_TAU2_USER_KEY": before} if before else {})
    with contextlib.closing(running):
        yield running
