"""The comparison: which runs there are, what the noise touches, and the tables' arithmetic."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recipes" / "quickstart" / "compare"))

import compare
from noisy_summary import NoisySummaryRewardManager
from omegaconf import OmegaConf

from verl_slca.errors import ConfigError
from verl_slca.trajectory import ToolCall, ToolResult, Trajectory, Turn

pytestmark = pytest.mark.verl

PING = {"name": "ping", "parameters": {"type": "object", "properties": {"host": {"type": "string"}}}}
TRAJECTORY = Trajectory(
    (
        Turn(
            '<tool_call>{"name": "ping", "arguments": {"host": "h1"}}</tool_call>',
            (ToolCall("ping", {"host": "h1"}),),
            (ToolResult("ping", '{"ms": 12}'),),
            (0, 4),
        ),
        Turn("h1 answers in 12 ms.", span=(6, 9)),
    ),
    "answer",
)


def test_every_method_and_noise_level_has_every_seed_once():
    runs = compare.planned(3)
    assert len(runs) == len({run.name for run in runs}) == 3 * (4 + 2 * 2)
    assert {run.method for run in runs if run.noise} == {"grpo", "slca"}


def item(session: int) -> list[Any]:
    fields = {
        "raw_prompt": [{"role": "user", "content": "Is h1 up?"}],
        "data_source": "test",
        "tools": json.dumps([PING]),
        "reward_model": {"ground_truth": {"gold_tool_calls": [[{"name": "ping", "arguments": {"host": "h1"}}]]}},
        "tool_extra_fields": {"trajectory": TRAJECTORY.to_dict()},
        "session_id": session,
        "global_steps": 1,
    }
    return [SimpleNamespace(non_tensor_batch=fields, batch={})]


def manager(estimator: str, **noise: Any) -> NoisySummaryRewardManager:
    reward = {"summary_noise": noise} if noise else {}
    config = OmegaConf.create({"algorithm": {"adv_estimator": estimator}, "reward": reward})
    return NoisySummaryRewardManager(config, tokenizer=None)


def test_noise_moves_the_summary_reward_and_the_total_alone_and_is_the_same_for_every_method():
    noisy, other, clean = (manager(m, sd=sd, seed=1) for m, sd in (("slca", 0.5), ("grpo", 0.5), ("slca", 0.0)))

    async def scores() -> list[dict[str, Any]]:
        return [await m.run_single(item(session)) for m in (noisy, other, clean) for session in (0, 1)]

    results = asyncio.run(scores())
    infos = [result["reward_extra_info"] for result in results]
    assert len({info["tool_reward"] for info in infos}) == 1
    shifts = [info["summary_reward"] - infos[4]["summary_reward"] for info in infos]
    assert shifts[0] == shifts[2] != 0
    assert shifts[0] != shifts[1]
    assert results[0]["reward_score"] - results[4]["reward_score"] == pytest.approx(shifts[0])


def test_noise_without_its_settings_is_refused():
    with pytest.raises(ConfigError, match=r"reward\.summary_noise\.sd"):
        manager("slca")


def test_tables_state_means_spreads_and_paired_differences(tmp_path):
    done = {
        compare.Run(method, seed, noise): dict.fromkeys(compare.COLUMNS, base + 0.1 * seed - noise * (method == "grpo"))
        for method, base in (("grpo", 0.4), ("slca", 0.5))
        for seed in range(3)
        for noise in compare.NOISE
    }
    assert "| grpo | 0.500 ± 0.100 |" in compare.methods_table(done)
    assert "| 0 | +0.100 [+0.100, +0.100] |" in compare.paired_table(done)
    assert "| slca | 0.600 ± 0.100 | 0.600 ± 0.100 | 0.600 ± 0.100 |" in compare.noise_table(done)
    assert compare.draw_noise(done, tmp_path / "noise.png").stat().st_size > 10_000


def test_an_unfinished_run_is_not_measured(tmp_path):
    assert compare.measured(tmp_path) == {}
