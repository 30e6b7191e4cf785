"""`algorithm.adv_estimator=slca`, `slca_toolpo` and `slca_rltr` for stock verl.

verl calls an estimator with token rewards, response mask, uids and the `algorithm` config. Here these become
segment rewards (`token_rewards.read`) and groups, and the functions in `advantages` do the rest. What the
two rewards of a rollout mean is up to the reward function:

| estimator     | tool_reward               | summary_reward                                                  |
|---------------|---------------------------|-----------------------------------------------------------------|
| `slca`        | R_tool                    | R_sum                                                           |
| `slca_toolpo` | R_action                  | R_succ; a rollout without an answer has not succeeded, so 0     |
| `slca_rltr`   | R_comp + R_repeat + R_error | ignored, but read as the planner's reward if there was no call |
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import register_adv_est

from verl_slca import advantages
from verl_slca.adapters.token_rewards import SegmentRewards, read
from verl_slca.advantages import Mode, SlcaConfig, segment_sum
from verl_slca.config import parse
from verl_slca.errors import ConfigError
from verl_slca.segments import mask_rule

logger = logging.getLogger(__name__)


@register_adv_est("slca")
@torch.no_grad()
def slca(
    token_level_rewards: Tensor, response_mask: Tensor, index: np.ndarray, config: Mapping[str, Any] | None = None
) -> tuple[Tensor, Tensor]:
    """SLCA advantages (B, T), float32, twice: as advantages and as returns, the way verl's GRPO does it.

    Args:
        token_level_rewards: (B, T), float32.
        response_mask: (B, T), 1 on the policy's tokens; all 0 in padding rows.
        index: uid of each row's prompt, (B,), object.
        config: verl's `algorithm` config; ours is under `slca` (`SlcaConfig`).

    Raises:
        ConfigError: an unknown key under `algorithm.slca`; no reward on any tool token; KL in the reward
            where it would hide the marks.
        ValueError: a reward is not finite.
    """
    settings = slca_config(config)
    rewards = segment_rewards(token_level_rewards, response_mask, settings, config)
    result = advantages.slca(
        *rewards,
        group_ids(index).to(response_mask.device),
        tool_weight=settings.tool_weight,
        summary_weight=settings.summary_weight,
        norm_by_std=_norm_by_std(config),
    )
    return result, result


@register_adv_est("slca_toolpo")
@torch.no_grad()
def slca_toolpo(
    token_level_rewards: Tensor, response_mask: Tensor, index: np.ndarray, config: Mapping[str, Any] | None = None
) -> tuple[Tensor, Tensor]:
    """ToolPO advantages (B, T), float32, twice; arguments and errors as `slca`.

    Raises:
        ConfigError: also for any KL in the reward, which ToolPO adds to the outcome but not to the actions.
    """
    settings = slca_config(config)
    if _kl_in_reward(config):
        raise ConfigError(_kl_problem("slca_toolpo", "ToolPO's action reward cannot be told from the KL on its tokens"))
    rewards = segment_rewards(token_level_rewards, response_mask, settings, config)
    result = advantages.toolpo(
        rewards.summary,
        rewards.tool,
        rewards.tool_mask,
        rewards.summary_mask,
        group_ids(index).to(response_mask.device),
        action_weight=settings.tool_weight,
        norm_by_std=_norm_by_std(config),
        mode=_mode(settings),
    )
    return result, result


@register_adv_est("slca_rltr")
@torch.no_grad()
def slca_rltr(
    token_level_rewards: Tensor, response_mask: Tensor, index: np.ndarray, config: Mapping[str, Any] | None = None
) -> tuple[Tensor, Tensor]:
    """RLTR advantages (B, T), float32, twice; arguments and errors as `slca`."""
    settings = slca_config(config)
    rewards = segment_rewards(token_level_rewards, response_mask, settings, config)
    result = advantages.rltr(
        torch.where(rewards.tool_mask.amax(1), rewards.tool, rewards.summary),
        rewards.tool_mask,
        rewards.summary_mask,
        group_ids(index).to(response_mask.device),
        norm_by_std=_norm_by_std(config),
        mode=_mode(settings),
    )
    return result, result


def segment_rewards(
    token_level_rewards: Tensor, response_mask: Tensor, settings: SlcaConfig, config: Mapping[str, Any] | None
) -> SegmentRewards:
    """Segment rewards of the batch; under ``segments="mask_rule"`` each includes its segment's KL, if any.

    KL lies on every token, so it hides both the marks of `place` and the absence of a tool reward.

    Raises:
        ConfigError: as `slca`.
    """
    _warn_of_empty_rows(response_mask)
    if not _kl_in_reward(config):
        return read(token_level_rewards, response_mask, settings.segments)
    if settings.segments != "mask_rule":
        raise ConfigError(_kl_problem("segments=turns", "KL on every token hides which run is the answer"))
    tool_mask, summary_mask = mask_rule(response_mask)
    tool, summary = (segment_sum(token_level_rewards, mask) for mask in (tool_mask, summary_mask))
    return SegmentRewards(tool, summary, tool_mask, summary_mask)


def _warn_of_empty_rows(response_mask: Tensor) -> None:
    empty = int((response_mask == 0).all(1).sum())
    if empty:
        logger.warning(
            "%d of the %d rows of this step have no learnable token: rollouts lost to a fault, or never returned and "
            "padded over by verl; the log of the agent loop workers has the first traceback of each kind. "
            "trainer.v1.trainer_mode=slca_sync counts them by kind and stops above algorithm.slca.max_lost_share",
            empty,
            len(response_mask),
        )


def slca_config(config: Mapping[str, Any] | None) -> SlcaConfig:
    """Our settings out of verl's `algorithm` config."""
    return parse(SlcaConfig, (config or {}).get("slca"), "algorithm.slca")


def group_ids(index: np.ndarray) -> Tensor:
    """One int64 per row, equal where the uids are, (B,)."""
    return torch.from_numpy(np.unique(np.asarray(index).astype(str), return_inverse=True)[1])


def _norm_by_std(config: Mapping[str, Any] | None) -> bool:
    return bool((config or {}).get("norm_adv_by_std_in_grpo", True))


def _kl_in_reward(config: Mapping[str, Any] | None) -> bool:
    return bool((config or {}).get("use_kl_in_reward", False))


def _kl_problem(what: str, why: str) -> str:
    return (
        f"algorithm.use_kl_in_reward=true does not work with {what}: {why}. Set algorithm.use_kl_in_reward=false and "
        f"actor_rollout_ref.actor.use_kl_loss=true; `slca` and `slca_rltr` also take +algorithm.slca.segments=mask_rule"
    )


def _mode(settings: SlcaConfig) -> Mode:
    return "reference" if settings.segments == "mask_rule" else "sound"
