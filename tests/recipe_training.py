"""The quickstart recipe's RL script, run small on a model and rows of a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RECIPE = Path(__file__).resolve().parents[1] / "recipes" / "quickstart"
SMALL = [
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.rollout.n=4",
    "data.max_prompt_length=256",
    "data.max_response_length=48",
    "trainer.save_freq=1",
    "trainer.n_gpus_per_node=1",
]


def row(tool: Mapping[str, Any], question: str, gold: str = "[]") -> dict[str, Any]:
    """A row that offers one tool, declared in the system message; `gold` is the JSON of its gold calls."""
    tools = json.dumps([tool])
    truth = {"question_content": question, "allowed_tools": [tool["name"]], "gold_tool_calls": gold}
    return {
        "prompt": [{"role": "system", "content": tools}, {"role": "user", "content": question}],
        "data_source": "test",
        "tools": tools,
        "extra_info": {"original_turn_index": 0},
        "reward_model": {"style": "rule", "ground_truth": truth},
    }


def train(rows: Path, model: Path, output: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    """One training, to its end or its error, its output in ``stdout``.

    Args:
        rows: folder of ``rl.parquet`` and ``heldout.parquet``.
        model: folder to start from.
        output: folder for metrics, rollouts and checkpoints.
        overrides: verl's, behind `SMALL`.
    """
    folders = {"WORLD": str(rows), "MODEL": str(model), "OUTPUT": str(output)}
    return subprocess.run(
        ["bash", str(RECIPE / "run_rl.sh"), *SMALL, *overrides],
        env={**os.environ, **folders, "PYTHON": sys.executable, "VERL_PLATFORM": "cpu", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
