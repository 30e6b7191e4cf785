"""Agent loop output that carries one reward per segment instead of one per rollout.

verl scores a rollout, then asks its output for tensors (`AgentLoopOutput.as_dict`). Here, at that moment,
the two rewards that the reward function returned in `reward_extra_info` are placed on the tokens they
belong to, and a rollout that an infrastructure fault hit is taken out: nothing of it is learnable.
Under verl's own estimators (`grpo`, ...) verl's scalar stays where verl put it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from omegaconf import DictConfig
from pydantic import PrivateAttr
from torch import Tensor
from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import register
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop

from verl_slca.adapters.token_rewards import place
from verl_slca.errors import as_fault

TOOL_REWARD = "tool_reward"
"""`reward_extra_info` key: reward of the tool segment, a finite float; ignored where there is no tool run."""
SUMMARY_REWARD = "summary_reward"
"""`reward_extra_info` key: reward of the final answer, a finite float; None when the rollout never answered."""
FAULT = "fault"
"""`reward_extra_info` key: kind of the infrastructure fault that hit the rollout, "" when none did."""


class SegmentedOutput(AgentLoopOutput):
    """An `AgentLoopOutput` whose `rm_scores` hold both segment rewards when the estimator is one of ours."""

    _per_segment: bool = PrivateAttr(default=False)

    @classmethod
    def of(cls, output: AgentLoopOutput, config: DictConfig) -> SegmentedOutput:
        """`output` with segment rewards; use it as the last line of an agent loop of your own.

        Args:
            output: what the agent loop returns.
            config: verl's whole config (`self.config` in an agent loop).
        """
        segmented = cls.model_construct(_fields_set=set(output.model_fields_set), **output.__dict__)
        segmented._per_segment = str(config.algorithm.adv_estimator).startswith("slca")
        return segmented

    def as_dict(self) -> dict[str, Any]:
        """Tensors of the rollout; see `AgentLoopOutput.as_dict`.

        With an `slca` estimator and `tool_reward` or `summary_reward` in `reward_extra_info`, `rm_scores`
        (T,) float32 hold the two rewards (`token_rewards.place`); one that is absent or not finite is
        written as NaN, which the estimator refuses by name. After a fault, or where a single unanswered
        token leaves nothing to learn from, `response_mask` and `rm_scores` are all 0, so that the rollout is
        in no group's statistics. A rollout whose rewards cannot be placed is lost to a fault like any other.
        """
        tensors = super().as_dict()
        info = self.extra_fields.get("reward_extra_info") or {}
        mask = tensors["response_mask"]
        if not info.get(FAULT) and self._per_segment and (TOOL_REWARD in info or SUMMARY_REWARD in info):
            try:
                tensors["response_mask"], tensors["rm_scores"] = self._on_tokens(mask, info)
            except Exception as error:
                info = dict.fromkeys(info) | {FAULT: as_fault(error, "placing").kind}
                tensors["extra_fields"] = tensors["extra_fields"] | {"reward_extra_info": info}
        if info.get(FAULT):
            tensors["response_mask"], tensors["rm_scores"] = torch.zeros_like(mask), torch.zeros(len(mask))
        return tensors

    def _on_tokens(self, mask: Tensor, info: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        trajectory = self.extra_fields.get("trajectory")
        if trajectory is None:
            return on_tokens(mask, info, info.get(SUMMARY_REWARD, 0.0) is not None)
        return on_tokens(mask, info, trajectory["stop"] == "answer", trajectory["turns"][-1]["span"][0])


def on_tokens(
    mask: Tensor, info: Mapping[str, Any], answered: bool, answer_start: int | None = None
) -> tuple[Tensor, Tensor]:
    """Response mask and token rewards of one rollout, (T,) int64 and (T,) float32.

    Args:
        mask: response mask, (T,), int64.
        info: `reward_extra_info` of the rollout.
        answered: whether the last run of learnable tokens is a final answer.
        answer_start: index of the answer's first token, where the agent loop knows its turns; checked.

    Raises:
        ValueError: the answer follows a call without an environment token between them (`token_rewards.place`).
    """
    runs = int((torch.diff(mask, prepend=mask.new_zeros(1)) == 1).sum())
    if runs == 0 or (mask.sum() == 1 and not answered):
        return torch.zeros_like(mask), torch.zeros(len(mask))
    tool = _number(info.get(TOOL_REWARD)) if runs > 1 or not answered else None
    summary = _number(info.get(SUMMARY_REWARD)) if answered else None
    placed = (0.0 if value is not None and math.isnan(value) else value for value in (tool, summary))
    rewards = place(mask, *placed, answer_start=answer_start)
    marks = rewards.nonzero()
    for value, mark in ((tool, marks[0]), (summary, marks[-1])):
        if value is not None and math.isnan(value):
            rewards[mark] = math.nan
    return mask, rewards


def _number(value: Any) -> float:
    return math.nan if value is None or not math.isfinite(value) else float(value)


@register("tool_agent")
class SegmentedToolAgentLoop(ToolAgentLoop):
    """verl's own tool agent loop, unchanged but for its output: segment rewards reach the tokens."""

    async def run(self, sampling_params: dict[str, Any], *args: Any, **kwargs: Any) -> SegmentedOutput:
        """The rollout of `ToolAgentLoop.run`, as a `SegmentedOutput`."""
        return SegmentedOutput.of(await super().run(sampling_params, *args, **kwargs), self.config)
