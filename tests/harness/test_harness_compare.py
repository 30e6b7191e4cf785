"""Two runs held against each other; pairs, flips, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer, error, perfect, write_rows
from slca_eval import slca_eval

from harness.benchmarks.task import Metric
from harness.benchmarks.toucan_gold import make_rows
from harness.compare import TaskScores, compare_scores, unpaired

METRICS = {"right": Metric("share", ""), "turns": Metric("count", "")}


def scores(**values: float | None) -> TaskScores:
    """Scores by sample id, None for one that failed; the kind is the id's first letter."""
    scored = {key: {"right": value, "turns": 1.0} for key, value in values.items() if value is not None}
    return TaskScores({key: key[0] for key in values}, scored)


def test_pairs_are_the_samples_that_both_scored() -> None:
    a = scores(x1=0.0, x2=0.0, x3=1.0, y1=1.0, y2=None, z1=1.0)
    b = scores(x1=1.0, x2=1.0, x3=1.0, y1=0.0, y2=1.0, w1=1.0)
    overall, turns, x, y = compare_scores(a, b, METRICS)
    assert (overall.group, overall.metric, overall.n) == ("all", "right", 4)
    assert (overall.a, overall.b) == (0.5, 0.75)
    assert (overall.up, overall.down) == (("x1", "x2"), ("y1",))
    assert overall.difference is not None
    assert overall.difference.p == 1.0  # 2 up, 1 down: two-sided binomial
    assert turns.difference is not None
    assert turns.difference.value == 0.0
    assert (x.group, x.n) == ("x", 3)
    assert (y.group, y.n, y.difference) == ("y", 1, None)
    assert unpaired(a, b) == [
        "Left out: 1 samples that only a has.",
        "Left out: 1 samples that failed in a for reasons not the model's.",
        "Left out: 1 samples that only b has.",
    ]


def test_two_runs_are_compared_with_flips_and_all_that_is_left_out(
    server: ScriptedServer, run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(folder=tmp_path / "a")
    rows = make_rows(12)
    server.script = lambda body: error(500) if "City4" in str(body) else perfect(body, rows)
    run("--temperature", 0.5, folder=tmp_path / "b")
    capsys.readouterr()
    assert slca_eval("compare", tmp_path / "a", tmp_path / "b") == 0
    said = capsys.readouterr().out
    assert "sampling.temperature: 0.0 in a, 0.5 in b" in said
    assert "1 samples that failed in b for reasons not the model's" in said
    line = next(line for line in said.splitlines() if "success@0.9" in line)
    assert [cell.strip() for cell in line.split("│")[2:5]] == ["27.27 %", "100.00 %", "+72.73"]
    assert "success@0.9 up: 000000-" in said
    assert "success@0.9 down: none" in said
    assert slca_eval("compare", tmp_path / "a", tmp_path / "b", "--flips", "calls") == 0
    assert "calls up: 000000-" in capsys.readouterr().out
    assert slca_eval("compare", tmp_path / "a", tmp_path / "b", "--flips", "wins") == 2


def test_other_data_or_other_scoring_is_refused(
    run: Any, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(folder=tmp_path / "a")
    config = tmp_path / "reference.yaml"
    config.write_text("hierr: {mode: reference}\n")
    run("--config", config, folder=tmp_path / "b")
    write_rows(data, make_rows(8))
    run(folder=tmp_path / "c")
    assert slca_eval("compare", tmp_path / "a", tmp_path / "b") == 2
    assert "hierr.mode: 'sound' in a, 'reference' in b" in capsys.readouterr().err
    assert slca_eval("compare", tmp_path / "a", tmp_path / "c") == 2
    assert "data.rows: 12 in a, 8 in b" in capsys.readouterr().err
    assert slca_eval("compare", tmp_path / "a", tmp_path) == 2
    assert "is this a run folder" in capsys.readouterr().err
