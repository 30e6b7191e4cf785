"""`reward.reward_manager.name=hierr`: HierR's two rewards for one rollout, inside verl's reward loop.

The trajectory comes from the agent loop (`slca_agent` sends it along); from any other loop the response
text is parsed. Settings are under `reward.hierr` (`HierrConfig`). Under a baseline's estimator its own two
rewards take HierR's places (`BASELINES`), so that one switch changes method and rewards together; HierR's
numbers are still there as metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from verl_slca.adapters.batch_row import row_of
from verl_slca.adapters.segmented_output import FAULT, SUMMARY_REWARD, TOOL_REWARD
from verl_slca.config import parse
from verl_slca.hierr import HierrConfig, HierrReward, make_judge, score_rollout, success_at
from verl_slca.hierr.action import action_reward
from verl_slca.hierr.process import attempts
from verl_slca.hierr.rltr import rltr_reward
from verl_slca.parsing import trajectory_from_text
from verl_slca.rows import Gold, Row
from verl_slca.trajectory import Trajectory


def toolpo_rewards(trajectory: Trajectory, gold: Gold) -> dict[str, float]:
    """ToolPO's R_action on the tool segment and R_succ, by the reference rule over the gold calls, on the answer."""
    reward = action_reward(attempts(trajectory, gold.allowed_tools), gold)
    return {TOOL_REWARD: reward.ratio, SUMMARY_REWARD: reward.solved}


def rltr_rewards(trajectory: Trajectory, gold: Gold) -> dict[str, float]:
    """RLTR's planner reward, on both segments: the estimator reads it off the answer when there was no call.

    R_comp is the share of gold calls made: the rule in place of the method's three votes of an LLM checker.
    """
    tried = attempts(trajectory, gold.allowed_tools)
    total = rltr_reward(tried, gold, completeness=action_reward(tried, gold).ratio).total
    return {TOOL_REWARD: total, SUMMARY_REWARD: total}


BASELINES: dict[str, Callable[[Trajectory, Gold], dict[str, float]]] = {
    "slca_toolpo": toolpo_rewards,
    "slca_rltr": rltr_rewards,
}


@register("hierr")
class HierrRewardManager(RewardManagerBase):
    """Scores rollouts with HierR; a judge's failure marks the rollout instead of scoring it.

    Args:
        config: verl's whole config.
        tokenizer: the policy's.
        kwargs: verl's reward-model handles, not used.

    Raises:
        ConfigError: an unknown key or a bad value under `reward.hierr`.
    """

    def __init__(self, config: DictConfig, tokenizer: Any, compute_score: Any = None, **kwargs: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        settings = OmegaConf.select(config, "reward.hierr")
        plain = OmegaConf.to_container(settings, resolve=True) if settings is not None else None
        self.settings = parse(HierrConfig, plain, "reward.hierr")  # type: ignore[arg-type]
        self.judge = make_judge(self.settings)
        self.baseline = BASELINES.get(str(config.algorithm.adv_estimator))

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """verl's reward result for the last sequence of `data`: the total, and everything else as extra info."""
        item = data[-1]
        return await self.result(self._trajectory(item), row_of(item.non_tensor_batch), item.non_tensor_batch)

    async def result(self, trajectory: Trajectory, row: Row, fields: Mapping[str, Any]) -> dict[str, Any]:
        """verl's reward result for one rollout of `row`; `fields` are the batch's other fields, for subclasses."""
        reward = await self.score(trajectory, row)
        info = extra_info(reward)
        if self.baseline is not None and not reward.fault:
            info |= self.baseline(trajectory, row.gold)
        return {"reward_score": 0.0 if reward.fault else reward.total, "reward_extra_info": info}

    async def score(self, trajectory: Trajectory, row: Row) -> HierrReward:
        """HierR's rewards of one rollout of `row`."""
        return await score_rollout(trajectory, row.gold, self.judge, self.settings)

    def _trajectory(self, item: Any) -> Trajectory:
        known = (item.non_tensor_batch.get("tool_extra_fields") or {}).get("trajectory")
        if known is not None:
            return Trajectory.from_dict(known)
        response = item.batch["responses"]
        length = int(item.batch["attention_mask"][-len(response) :].sum())
        return trajectory_from_text(self.tokenizer.decode(response[:length], skip_special_tokens=True))


def extra_info(reward: HierrReward) -> dict[str, Any]:
    """`reward_extra_info` of one rollout; the numbers of a rollout lost to a fault are None, never 0."""
    numbers = {
        TOOL_REWARD: reward.tool,
        SUMMARY_REWARD: reward.summary,
        "score": reward.total,
        "omitted": float(reward.omitted),
        "success_at_0.9": float(success_at(reward.process, 0.9)),
        **reward.parts,
    }
    if reward.fault:
        numbers = dict.fromkeys(numbers)
    return {**numbers, FAULT: reward.fault or ""}
