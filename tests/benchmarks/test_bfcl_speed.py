"""Scoring saved answers to all 2,501 single-turn entries: ours beside the official command, on the same files.

The official command needs the package's whole dependency list; name it in ``SLCA_BFCL_COMMAND`` to have it timed too.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from harness.benchmarks.bfcl import gold
from harness.benchmarks.bfcl.decode import result_of
from harness.benchmarks.bfcl.files import read_results, write_results
from harness.benchmarks.bfcl.task import Bfcl
from harness.benchmarks.task import TaskOptions
from harness.environments import setup
from harness.records import Record
from verl_slca.episode import Limits

MODEL = "gpt-4o-2024-11-20-FC"
"""A model the official command knows, with underscores for dots, as we send names."""


def load() -> Bfcl:
    return Bfcl.load(TaskOptions(None, Limits(), 0, {}, ("single_turn",)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    setup(["bfcl-v4"], Console(stderr=True))
    task, folder = load(), tmp_path_factory.mktemp("bfcl")
    script = gold.scripts(task)["gold"]
    results = {sample.id: result_of(script(sample.id, {}), "fc", False) for sample in task.samples()}
    records = [
        Record(id, "bfcl", task.kind(id), "ok", scores={"accuracy": 1.0}, trajectory={"result": result})
        for id, result in results.items()
    ]
    write_results(task, records, folder / "result" / MODEL)
    return folder


@pytest.mark.benchmark(group="bfcl")
def test_our_scoring(benchmark, folder):
    def score() -> int:
        task = load()
        return sum(asyncio.run(task.official_verdicts(read_results(task, folder / "result" / MODEL))).values())

    assert benchmark.pedantic(score, rounds=3) == 2494


@pytest.mark.benchmark(group="bfcl")
def test_our_command(benchmark, folder):
    command = [sys.executable, "-m", "harness.benchmarks.bfcl", "score", folder / "result" / MODEL]
    benchmark.pedantic(lambda: subprocess.run(command, check=True, capture_output=True), rounds=3)


@pytest.mark.benchmark(group="bfcl")
@pytest.mark.skipif("SLCA_BFCL_COMMAND" not in os.environ, reason="SLCA_BFCL_COMMAND names no `bfcl`")
def test_the_official_command(benchmark, folder):
    command = [os.environ["SLCA_BFCL_COMMAND"], "evaluate", "--model", MODEL, "--test-category", "single_turn"]
    environment = {**os.environ, "BFCL_PROJECT_ROOT": str(folder), "OPENAI_API_KEY": "none"}
    environment.pop("PYTHONPATH", None)
    benchmark.pedantic(lambda: subprocess.run(command, env=environment, check=True, capture_output=True), rounds=3)
