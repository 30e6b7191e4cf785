"""Which rewards reach which tokens, under whose estimator."""

from __future__ import annotations

import math

import pytest
import torch
from omegaconf import OmegaConf

pytest.importorskip("verl")

from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

from verl_slca.adapters.segmented_output import SegmentedOutput, on_tokens
from verl_slca.adapters.token_rewards import read

pytestmark = pytest.mark.verl
TWO_RUNS = [1, 1, 0, 0, 1, 1]


def tensors(estimator: str, mask: list[int], info: dict, **extra: object) -> dict:
    output = AgentLoopOutput(
        prompt_ids=[5, 6],
        response_ids=list(range(len(mask))),
        response_mask=mask,
        metrics=AgentLoopMetrics(),
        extra_fields=dict(extra),
    )
    segmented = SegmentedOutput.of(output, OmegaConf.create({"algorithm": {"adv_estimator": estimator}}))
    segmented.reward_score = 1.5  # verl scores after the loop has returned
    segmented.extra_fields["reward_extra_info"] = info
    return segmented.as_dict()


def test_both_rewards_reach_their_segments_under_slca():
    found = tensors("slca", TWO_RUNS, {"tool_reward": 0.5, "summary_reward": 1.0})
    segments = read(found["rm_scores"][None], found["response_mask"][None])
    assert (segments.tool.item(), segments.summary.item()) == (0.5, 1.0)
    assert found["response_mask"].tolist() == TWO_RUNS


def test_verls_own_estimator_sees_verls_own_scalar():
    found = tensors("grpo", TWO_RUNS, {"tool_reward": 0.5, "summary_reward": 1.0})
    assert found["rm_scores"].tolist() == [0, 0, 0, 0, 0, 1.5]


def test_without_segment_rewards_the_scalar_stays_for_the_estimator_to_refuse():
    found = tensors("slca", TWO_RUNS, {"acc": 1.0})
    assert found["rm_scores"].tolist() == [0, 0, 0, 0, 0, 1.5]


def test_a_tool_reward_without_a_tool_run_is_ignored():
    found = tensors("slca", [1, 1, 1], {"tool_reward": 0.5, "summary_reward": 0.25})
    assert found["rm_scores"].tolist() == [0, 0, 0.25]


def test_the_trajectory_says_that_a_cut_off_rollout_has_no_answer():
    info = {"tool_reward": 0.5, "summary_reward": 0.9}
    found = tensors(
        "slca", TWO_RUNS, info, trajectory={"stop": "length", "turns": [{"span": [0, 2]}, {"span": [4, 6]}]}
    )
    assert found["rm_scores"].tolist() == [0, 0, 0, 0, 0.5, 0]


def test_an_answer_right_behind_a_call_is_lost_since_the_mask_cannot_tell_them_apart():
    turns = [{"span": [0, 2]}, {"span": [2, 4]}]
    info = {"tool_reward": 0.5, "summary_reward": 1.0}
    found = tensors("slca", [1, 1, 1, 1], info, trajectory={"stop": "answer", "turns": turns})
    lost = {"tool_reward": None, "summary_reward": None, "fault": "placing_ValueError"}
    assert found["extra_fields"]["reward_extra_info"] == lost
    assert found["response_mask"].sum() == 0
    assert found["rm_scores"].tolist() == [0] * 4


def test_without_a_trajectory_a_none_summary_says_the_same():
    found = tensors("slca", TWO_RUNS, {"tool_reward": 0.5, "summary_reward": None})
    assert found["rm_scores"].tolist() == [0, 0, 0, 0, 0.5, 0]


@pytest.mark.parametrize("estimator", ["slca", "grpo"])
def test_a_fault_leaves_nothing_learnable(estimator):
    found = tensors(estimator, TWO_RUNS, {"tool_reward": None, "summary_reward": None, "fault": "judge_timeout"})
    assert found["response_mask"].sum() == 0
    assert found["rm_scores"].tolist() == [0] * 6


def test_a_single_unanswered_token_leaves_nothing_learnable():
    mask, rewards = on_tokens(torch.tensor([1]), {"tool_reward": 0.5}, answered=False)
    assert mask.sum() == 0
    assert rewards.sum() == 0


@pytest.mark.parametrize(
    ("info", "missing"),
    [
        ({"tool_reward": 0.5}, "summary_reward"),
        ({"summary_reward": 0.5}, "tool_reward"),
        ({"tool_reward": 0.5, "summary_reward": math.inf}, "summary_reward"),
        ({"tool_reward": math.nan, "summary_reward": 0.5}, "tool_reward"),
    ],
)
def test_a_missing_or_infinite_reward_stops_training_by_name(info, missing):
    found = tensors("slca", TWO_RUNS, info)
    with pytest.raises(ValueError, match=f"{missing} of row 0"):
        read(found["rm_scores"][None], found["response_mask"][None])
