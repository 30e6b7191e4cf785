"""Real training: stock verl, Ray, FSDP2, our plugin and the quickstart recipe, on rows made here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")
sys.path.insert(0, str(Path(__file__).parent / "adapters" / "cpu"))

import tiny_model
from recipe_training import row, train
from transformers import AutoModelForCausalLM

from verl_slca.prepare import write_parquet
from verl_slca.training_curve import draw_curve, read_steps

pytestmark = [pytest.mark.verl, pytest.mark.slow]

PING = {"name": "ping", "parameters": {"type": "object", "properties": {"host": {"type": "string"}}}}


def say(number: int) -> dict[str, Any]:
    return row(PING, f"Say {number}.")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("training")
    tiny_model.build(directory / "model", hidden=64, layers=2)
    for name in ("rl", "heldout"):
        write_parquet([say(number) for number in range(16)], directory / f"{name}.parquet")
    return directory


@pytest.fixture(scope="module")
def two_steps(directory: Path) -> subprocess.CompletedProcess[str]:
    return train(directory, directory / "model", directory / "out", "trainer.total_training_steps=2")


def test_two_steps_train_and_leave_metrics_rollouts_and_a_checkpoint(two_steps, directory):
    assert two_steps.returncode == 0, two_steps.stdout[-4000:]
    steps = read_steps(directory / "out" / "metrics")
    assert sorted(steps) == [1, 2]
    assert steps[2]["faults/lost"] == 0
    assert 0 <= steps[2]["rollout/summary/mean"] <= 1
    assert steps[2]["actor/grad_norm"] >= 0
    assert len((directory / "out" / "rollouts" / "2.jsonl").read_text().splitlines()) == 16
    model = AutoModelForCausalLM.from_pretrained(directory / "out" / "model")
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert draw_curve(directory / "out" / "metrics", directory / "curve.png").stat().st_size > 10_000


def test_started_again_it_resumes_from_its_last_checkpoint(two_steps, directory):
    again = train(directory, directory / "model", directory / "out", "trainer.total_training_steps=3")
    assert again.returncode == 0, again.stdout[-4000:]
    assert "global_step_2" in again.stdout
    assert sorted(read_steps(directory / "out" / "metrics")) == [1, 2, 3]


def test_bad_data_stops_before_training_with_file_row_and_fix(directory):
    bad = say(0)
    bad["reward_model"]["ground_truth"]["gold_tool_calls"] = '[[{"name": "pong", "arguments": {}}]]'
    write_parquet([say(1), bad], directory / "bad.parquet")
    files = f"data.train_files={directory / 'bad.parquet'}"
    result = train(directory, directory / "model", directory / "out", files)
    assert result.returncode != 0
    assert "bad.parquet" in result.stdout
    assert "row 1: gold_tool_calls: 'pong' is not among the tools offered" in result.stdout
