"""Real Toucan rows of all three shapes through the whole path: conversion, agent loop, SGLS, HierR, estimator."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("verl")
sys.path.insert(0, str(Path(__file__).parent / "cpu"))

import tiny_model
from omegaconf import OmegaConf
from test_agent_loop import ScriptedServer
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.dataset.rl_dataset import RLHFDataset

from verl_slca.adapters.agent_loop import SlcaAgentLoop
from verl_slca.adapters.estimators import slca
from verl_slca.adapters.reward_manager import extra_info
from verl_slca.hierr import HierrConfig, make_judge, score_rollout
from verl_slca.parsing import render_call
from verl_slca.rows import Row, row_from_record
from verl_slca.sgls.generate import generate_arguments
from verl_slca.toucan import convert
from verl_slca.trajectory import ToolCall, Trajectory

SHARED = Path(os.environ.get("SLCA_SHARED", Path(__file__).resolve().parents[3] / "shared"))
pytestmark = [
    pytest.mark.verl,
    pytest.mark.skipif(not SHARED.is_dir(), reason="real Toucan rows are not here"),
]
CONFIG = OmegaConf.create(
    {
        "actor_rollout_ref": {
            "rollout": {
                "multi_turn": {
                    "max_assistant_turns": 12,
                    "max_parallel_calls": 20,
                    "max_tool_response_length": 2048,
                    "tool_response_truncate_side": "middle",
                },
                "prompt_length": 60_000,
                "response_length": 60_000,
                "seed": 0,
            }
        },
        "algorithm": {"adv_estimator": "slca"},
        "data": {},
    }
)


def real_records() -> list[dict[str, Any]]:
    found = []
    for name in ("toucan_raw", "toucan_sft_json", "toucan_rl"):
        found += convert(SHARED / "data" / f"{name}.jsonl", "rl")[0] if SHARED.is_dir() else []
    return found


def gold_texts(row: Row) -> list[str]:
    """What a policy that knows the gold writes, step by step, then an answer."""
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in row.tools}
    steps = []
    for step in row.gold.steps:
        calls = [
            ToolCall(c.name, c.arguments if c.arguments is not None else generate_arguments(schemas[c.name], seed=0))
            for c in step
        ]
        steps.append("\n".join(map(render_call, calls)))
    return [*steps, "That is all there is to say about it."]


async def rollout(record: dict[str, Any], row: Row, tokenizer: Any, texts: list[str], session: int) -> dict[str, Any]:
    loop = SlcaAgentLoop(
        trainer_config=DictConfigWrap(CONFIG),
        server_manager=ScriptedServer(tokenizer, texts),
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(CONFIG.data),
        hf_model_type="qwen2",
    )
    fields = {**record, "raw_prompt": row.prompt, "session_id": session, "global_steps": 1}
    output = await loop.run({"temperature": 1.0, "logprobs": True}, **fields)
    config = HierrConfig()
    trajectory = Trajectory.from_dict(output.extra_fields["trajectory"])
    reward = await score_rollout(trajectory, row.gold, make_judge(config), config)
    assert reward.fault is None
    output.reward_score = reward.total
    output.extra_fields["reward_extra_info"] = extra_info(reward)
    return output.as_dict()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return AutoTokenizer.from_pretrained(tiny_model.build(tmp_path_factory.mktemp("tiny"), hidden=64, layers=1))


@pytest.mark.parametrize("record", real_records(), ids=lambda record: row_from_record(record, "").key)
def test_a_rollout_of_the_gold_beats_one_that_calls_nothing(record, tokenizer):
    row = row_from_record(json.loads(json.dumps(record)), "row")

    async def both() -> list[dict[str, Any]]:
        right = await rollout(record, row, tokenizer, gold_texts(row), session=0)
        idle = await rollout(record, row, tokenizer, ["I would rather not say anything."], session=1)
        return [right, idle]

    outputs = asyncio.run(both())
    length = max(len(output["response_mask"]) for output in outputs)
    mask, rewards = (
        torch.stack([torch.nn.functional.pad(output[key], (0, length - len(output[key]))) for output in outputs])
        for key in ("response_mask", "rm_scores")
    )
    advantages, _ = slca(rewards, mask, np.array(["u", "u"], dtype=object), OmegaConf.create({}))
    assert advantages.isfinite().all()
    assert (advantages[mask == 0] == 0).all()
    if row.gold.calls:
        assert rewards[0].sum() > rewards[1].sum()
        last = [int(row_mask.nonzero()[-1]) for row_mask in mask]
        assert advantages[0, last[0]] >= advantages[1, last[1]]
