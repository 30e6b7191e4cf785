"""Agent loop output that carries one reward per segment instead of one per rollout.

verl scores a rollout, then asks its output for tensors (`AgentLoopOutput.as_dict`). Here, at that moment,
the two rewards that the reward function returned in `reward_extra_info` are placed on the tokens they
belong to, and a rollout that an infrastructure fault hit is taken out: nothing of it is learnable.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import register
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop

from verl_slca.adapters.token_rewards import place
from verl_slca.errors import ConfigError

TOOL_REWARD = "tool_reward"
"""`reward_extra_info` key: reward of the tool segment, a finite float, or None when there is none."""
SUMMARY_REWARD = "summary_reward"
"""`reward_extra_info` key: reward of the final answer, a finite float, or None when there is none."""
FAULT = "fault"
"""`reward_extra_info` key: kind of the infrastructure fault that hit the rollout, "" when none did."""


class SegmentedOutput(AgentLoopOutput):
    """An `AgentLoopOutput` whose `rm_scores` hold both segment rewards when the reward function gave them."""

    @classmethod
    def of(cls, output: AgentLoopOutput) -> SegmentedOutput:
        """`output` as a `SegmentedOutput`; use it as the last line of an agent loop of your own."""
        return cls.model_construct(_fields_set=set(output.model_fields_set), **output.__dict__)

    def as_dict(self) -> dict[str, Any]:
        """Tensors of the rollout; see `AgentLoopOutput.as_dict`.

        `rm_scores` (T,) float32 hold the tool and the summary reward (`token_rewards.place`) when
        `reward_extra_info` has `tool_reward` or `summary_reward`; otherwise verl's scalar stays as it is.
        After a fault `response_mask` and `rm_scores` are all 0, so the rollout is in no group's statistics.

        Raises:
            ConfigError: a segment reward is not a finite number.
        """
        tensors = super().as_dict()
        info = self.extra_fields.get("reward_extra_info") or {}
        mask = tensors["response_mask"]
        if info.get(FAULT):
            tensors["response_mask"] = torch.zeros_like(mask)
            tensors["rm_scores"] = torch.zeros_like(mask, dtype=torch.float32)
        elif TOOL_REWARD in info or SUMMARY_REWARD in info:
            tool, summary = (_finite(info.get(key), key) for key in (TOOL_REWARD, SUMMARY_REWARD))
            tensors["rm_scores"] = place(mask, tool, summary)
        return tensors


def _finite(value: Any, key: str) -> float | None:
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        raise ConfigError(f"reward_extra_info[{key!r}] is {number}: the reward function must return a finite number")
    return number


@register("tool_agent")
class SegmentedToolAgentLoop(ToolAgentLoop):
    """verl's own tool agent loop, unchanged but for its output: segment rewards reach the tokens."""

    async def run(self, sampling_params: dict[str, Any], *args: Any, **kwargs: Any) -> SegmentedOutput:
        """The rollout of `ToolAgentLoop.run`, as a `SegmentedOutput`."""
        return SegmentedOutput.of(await super().run(sampling_params, *args, **kwargs))
