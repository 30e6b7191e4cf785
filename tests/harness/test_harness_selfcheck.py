"""Scripted models through the whole path: the check itself, and that it can fail."""

import dataclasses
from pathlib import Path

import pytest
from slca_eval import results, slca_eval

from harness.benchmarks import toucan_gold
from harness.benchmarks.registry import TASKS


def test_every_script_scores_what_it_must(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert slca_eval("selfcheck", "--tasks", "toucan", "--output-dir", tmp_path / "check") == 0
    said = capsys.readouterr().out
    assert "As expected." in said
    assert {path.name for path in (tmp_path / "check/toucan").iterdir() if path.is_dir()} == {
        "gold",
        "gold_structured",
        "wrong",
        "noop",
    }
    assert results(tmp_path / "check/toucan/gold")["metrics"]["process"]["value"] == 1.0
    assert slca_eval("selfcheck", "--tasks", "toucan", "--output-dir", tmp_path / "check") == 2


def test_a_difference_is_exit_code_1_and_names_the_samples(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lying = dataclasses.replace(
        toucan_gold.GOLD,
        scripts=lambda task: {"noop": lambda sample, body: {"content": "Hello there!"}},
        expected=lambda task, script: {sample.id: {"success@0.9": 1.0} for sample in task.samples()},
    )
    monkeypatch.setitem(TASKS, "toucan", dataclasses.replace(TASKS["toucan"], gold=lying))
    assert slca_eval("selfcheck", "--tasks", "toucan", "--limit", 4) == 1
    said = capsys.readouterr().out
    assert "differ" in said
    assert "0, 1 expected" in said


def test_a_script_that_fails_is_no_score(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    failing = dataclasses.replace(
        toucan_gold.GOLD,
        scripts=lambda task: {"broken": lambda sample, body: {}["no such key"]},
        expected=lambda task, script: {sample.id: {"success@0.9": 0.0} for sample in task.samples()},
    )
    monkeypatch.setitem(TASKS, "toucan", dataclasses.replace(TASKS["toucan"], gold=failing))
    assert slca_eval("selfcheck", "--tasks", "toucan", "--limit", 2) == 1
    assert "no score: policy_server_error" in capsys.readouterr().out.replace("\n", " ")
