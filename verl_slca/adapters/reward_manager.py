"""`reward.reward_manager.name=hierr`: HierR's two rewards for one rollout, inside verl's reward loop.

The trajectory comes from the agent loop (`slca_agent` sends it along); from any other loop the response
text is parsed. Settings are under `reward.hierr` (`HierrConfig`). Under the baselines' estimators the same
two places carry the baseline's own rewards, so that one switch changes method and rewards together.
"""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from verl_slca.adapters.segmented_output import FAULT, SUMMARY_REWARD, TOOL_REWARD
from verl_slca.config import parse
from verl_slca.hierr import HierrConfig, HierrReward, make_judge, score_rollout, success_at
from verl_slca.parsing import trajectory_from_text
from verl_slca.rows import Row, row_from_record
from verl_slca.trajectory import Trajectory


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

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """verl's reward result for the last sequence of `data`: the total, and everything else as extra info."""
        item = data[-1]
        fields = item.non_tensor_batch
        row = row_from_record({**fields, "prompt": fields["raw_prompt"]}, where=f"row {fields.get('index', '?')}")
        reward = await self.score(self._trajectory(item), row)
        return {"reward_score": 0.0 if reward.fault else reward.total, "reward_extra_info": extra_info(reward)}

    async def score(self, trajectory: Trajectory, row: Row) -> HierrReward:
        """The two rewards of one rollout of `row`."""
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
