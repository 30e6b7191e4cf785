"""`reward.reward_manager.name=hierr`: HierR's two rewards for one rollout, inside verl's reward loop.

The trajectory comes from the agent loop (`slca_agent` sends it along); from any other loop the response
text is parsed. Settings are under `reward.hierr` (`HierrConfig`). Under a baseline's estimator its own two
rewards take HierR's places (`BASELINES`), so that one switch changes method and rewards together; HierR's
numbers are still there as metrics.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from verl_slca.adapters.agent_loop import SGLS_KEY, sgls_settings
from verl_slca.adapters.batch_row import row_of
from verl_slca.adapters.segmented_output import FAULT, SUMMARY_REWARD, TOOL_REWARD
from verl_slca.adapters.shared_cache import open_cache
from verl_slca.config import parse
from verl_slca.errors import JudgeFault, as_fault
from verl_slca.hierr import HierrConfig, HierrReward, make_judge, score_rollout, success_at
from verl_slca.hierr.action import action_reward
from verl_slca.hierr.asking import Asker, make_asker
from verl_slca.hierr.process import attempts
from verl_slca.hierr.reward import asked
from verl_slca.hierr.rltr import rltr_reward
from verl_slca.hierr.solved_judge import CompletenessChecker, SolvedJudge
from verl_slca.model_families import family_warning
from verl_slca.parsing import parse_turn, render_call, trajectory_from_text
from verl_slca.rows import Row
from verl_slca.sgls.config import SglsConfig
from verl_slca.trajectory import Trajectory

logger = logging.getLogger(__name__)


async def toolpo_rewards(trajectory: Trajectory, row: Row, asker: Asker | None) -> dict[str, float]:
    """ToolPO's R_action on the tool segment, R_succ on the answer.

    R_succ is the model's verdict Solved, or without one the reference rule: every gold call was made.
    """
    reward = action_reward(attempts(trajectory, row.gold.allowed_tools), row.gold)
    solved = reward.solved
    if asker is not None:
        reply = parse_turn(trajectory.answer).content
        said = [result.content for result in trajectory.results]
        solved = await SolvedJudge(asker).solved(asked(row.gold), said, reply) if reply else 0.0
    return {TOOL_REWARD: reward.ratio, SUMMARY_REWARD: solved}


async def rltr_rewards(trajectory: Trajectory, row: Row, asker: Asker | None) -> dict[str, float]:
    """RLTR's planner reward, on both segments: the estimator reads it off the answer when there was no call.

    R_comp is the mean of the model's three votes, or without a model the share of gold calls made.
    """
    tried = attempts(trajectory, row.gold.allowed_tools)
    if asker is None:
        completeness = action_reward(tried, row.gold).ratio
    else:
        calls = [render_call(call) for turn in trajectory.turns for call in turn.calls]
        said = [result.content for result in trajectory.results]
        completeness = await CompletenessChecker(asker).completeness(asked(row.gold), calls, said)
    total = rltr_reward(tried, row.gold, completeness).total
    return {TOOL_REWARD: total, SUMMARY_REWARD: total}


BASELINES: dict[str, Callable[[Trajectory, Row, Asker | None], Awaitable[dict[str, float]]]] = {
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
        self.asker = None
        if self.settings.judge == "llm":
            self.asker = make_asker(self.settings.llm, open_cache(self.settings.llm.cache))
        self.judge = make_judge(self.settings, self.asker)
        _warn_of_family(config, self.settings)
        self.baseline = BASELINES.get(str(config.algorithm.adv_estimator))

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """verl's reward result for the last sequence of `data`: the total, and everything else as extra info.

        Whatever is raised marks the rollout as lost (`as_fault`); one that came back lost is not looked at.
        """
        item = data[-1]
        try:
            trajectory = self._trajectory(item)
            if trajectory.fault:
                return _lost(trajectory.fault)
            return await self.result(trajectory, row_of(item.non_tensor_batch), item.non_tensor_batch)
        except Exception as error:
            return _lost(as_fault(error, "reward").kind)

    async def result(self, trajectory: Trajectory, row: Row, fields: Mapping[str, Any]) -> dict[str, Any]:
        """verl's reward result for one rollout of `row`; `fields` are the batch's other fields, for subclasses."""
        reward = await self.score(trajectory, row)
        info = extra_info(reward)
        if self.baseline is not None and not reward.fault:
            try:
                info |= await self.baseline(trajectory, row, self.asker)
            except JudgeFault as fault:
                reward = dataclasses.replace(reward, fault=as_fault(fault, "reward").kind)
                info = extra_info(reward)
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


def _lost(fault: str) -> dict[str, Any]:
    return {"reward_score": 0.0, "reward_extra_info": extra_info(HierrReward(None, None, 0.0, fault=fault))}


def _warn_of_family(config: DictConfig, settings: HierrConfig) -> None:
    sgls = parse(SglsConfig, sgls_settings(config), SGLS_KEY)
    warning = family_warning(
        policy=str(OmegaConf.select(config, "actor_rollout_ref.model.path") or ""),
        judge=settings.llm.model if settings.judge == "llm" else None,
        simulator=sgls.llm.model if "llm" in sgls.backends else None,
    )
    if warning:
        logger.warning("%s", warning)


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
