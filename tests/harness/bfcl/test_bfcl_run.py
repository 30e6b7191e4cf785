"""`slca-eval run --tasks bfcl:...` as a whole."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from bfcl_fixtures import Load
from slca_eval import slca_eval

from harness.benchmarks.bfcl import gold
from harness.scripted_server import NAME, Reply, ScriptedServer, error_reply


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())["tasks"]["bfcl"]


class Dying(ScriptedServer):
    """Fails from the tenth request on, until it is healed."""

    def __init__(self) -> None:
        super().__init__(models=[NAME])
        self.left, self._lock = 10, threading.Lock()

    def answer(self, sample: str, body: dict[str, Any]) -> Reply:
        with self._lock:
            self.left -= 1
        return super().answer(sample, body) if self.left >= 0 else error_reply(500, "gone")


def test_a_server_that_dies_midway_costs_no_score_and_the_run_goes_on_later(load: Load, tmp_path: Path) -> None:
    task = load("live_parallel", "live_relevance")
    arguments = ["run", "--tasks", "bfcl:live_parallel,live_relevance", "--output-dir", tmp_path / "run"]
    with Dying() as server:
        server.script = gold.scripts(task)["gold"]
        arguments += ["--model", server.url, "--retries", 0, "--concurrency", 2]
        assert slca_eval(*arguments) == 1
        half = results(tmp_path / "run")
        assert half["samples"]["expected"] == 32
        assert half["samples"]["ok"] == 10
        assert half["metrics"]["accuracy"]["value"] == 1.0
        server.left = 1000
        assert slca_eval(*arguments) == 0
    done = results(tmp_path / "run")
    assert (done["samples"]["ok"], done["metrics"]["accuracy"]["value"]) == (32, 1.0)
    assert done["made_with"]["bfcl_eval"] == "2026.3.23"
    assert set(done["made_with"]["data"]) == {"live_parallel", "live_parallel/answers", "live_relevance"}


@pytest.mark.parametrize("version", ["v4", "v3"])
def test_selfcheck(load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str) -> None:
    load("multi_turn")
    folder = tmp_path / "check"
    wanted = ("--tasks", "bfcl:all", "--bfcl-version", version, "--limit", 25, "--output-dir", folder)
    assert slca_eval("selfcheck", *wanted) == 0
    assert "As expected." in capsys.readouterr().out
    assert results(folder / "bfcl" / "gold")["made_with"]["version"] == version


def test_export_writes_what_the_official_command_reads(load: Load, tmp_path: Path) -> None:
    import subprocess
    import sys

    task = load("live_parallel")
    with ScriptedServer(gold.scripts(task)["gold"]) as server:
        run = tmp_path / "run"
        assert slca_eval("run", "--tasks", "bfcl:live_parallel", "--output-dir", run, "--model", server.url) == 0
    live = results(run)["aggregates"]
    assert live == {}
    command = [sys.executable, "-m", "harness.benchmarks.bfcl"]
    subprocess.run([*command, "export", run, tmp_path / "result" / "x"], check=True, capture_output=True)
    scored = subprocess.run([*command, "score", tmp_path / "result" / "x"], check=True, capture_output=True, text=True)
    assert scored.stdout.split() == ["live_parallel", "100.00", "%", "16/16"]
