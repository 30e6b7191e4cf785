"""The command on the mock domain: what a run leaves behind."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from slca_eval import slca_eval
from tau2_bench import KEY, Server

from harness.benchmarks.tau2 import gold
from harness.benchmarks.tau2.task import Tau2


@pytest.fixture
def run(tau2_server: Server, tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def run(*more: object, **settings: Any) -> int:
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump({"tau2": {**gold.settings(tau2_server.url)["tau2"], **settings}}))
        fixed = ["--model", tau2_server.url, "--output-dir", tmp_path / "run", "--config", config, "--retries", 0]
        return slca_eval("run", "--tasks", "tau2:mock", "--concurrency", 8, *fixed, *more)

    return run


def test_a_run_in_trials_gives_pass_k_and_saves_no_key(
    run: Any, task: Tau2, tau2_server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    right, lazy = (gold.scripts(task)[name] for name in ("gold", "noop"))
    tau2_server.script = lambda id, body: (lazy if id == "mock/update_task_1/1" else right)(id, body)
    assert run(trials=2) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())["tasks"]["tau2"]
    ids = [entry["id"] for entry in task.installation.domains["mock"]["tasks"]]
    wrong = len(gold.INCOMPLETE.intersection(ids))
    n = len(ids)
    assert results["complete"]
    assert results["samples"]["expected"] == 2 * n
    assert results["aggregates"]["pass^1 mock"]["value"] == pytest.approx((n - wrong - 0.5) / n)
    assert results["aggregates"]["pass^2 mock"]["value"] == pytest.approx((n - wrong - 1) / n)
    assert results["aggregates"]["floor mock"]["value"] == pytest.approx(1 / n)
    shown = " ".join(capsys.readouterr().out.split())
    assert "floor mock" in shown
    assert "does not compare" in shown
    assert "2 of the 4 or more trials" in shown
    kept = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert KEY.encode() not in kept
    # What is done is not played again, and other settings are refused.
    tau2_server.requests.clear()
    assert run(trials=2) == 0
    assert tau2_server.requests == []
    assert run(trials=3) == 2


def test_a_run_is_graded_again_without_its_models(
    run: Any, task: Tau2, tau2_server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    right, lazy = (gold.scripts(task)[name] for name in ("gold", "noop"))
    tau2_server.script = lambda id, body: (lazy if id == "mock/update_task_1/0" else right)(id, body)
    assert run() == 0
    before, samples = (tmp_path / "run/results.json").read_bytes(), tmp_path / "run/samples.jsonl"
    rewarded = samples.read_text().count('"reward": 1.0, "tool_calls"')
    samples.write_text(samples.read_text().replace('"reward": 1.0, "tool_calls"', '"reward": 0.0, "tool_calls"'))
    tau2_server.requests.clear()
    assert slca_eval("rescore", tmp_path / "run") == 0
    assert tau2_server.requests == []
    assert (tmp_path / "run/rescored/results.json").read_bytes() == before
    assert f"({rewarded} up, 0 down of" in " ".join(capsys.readouterr().out.split())


def test_a_server_that_does_not_take_calls_apart_stops_the_run(
    run: Any, tau2_server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    tau2_server.script = lambda id, body: gold.text('<tool_call>{"name": "find_order"}</tool_call>')
    assert run() == 2
    assert "--tool-call-parser" in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "run" / "samples.jsonl").read_text() == ""


def test_an_unknown_domain_is_refused(capsys: pytest.CaptureFixture[str]):
    assert slca_eval("run", "--model", "http://127.0.0.1:9/v1", "--tasks", "tau2:airlines", "--output-dir", "x") == 2
    assert "Did you mean 'airline'" in " ".join(capsys.readouterr().err.split())
