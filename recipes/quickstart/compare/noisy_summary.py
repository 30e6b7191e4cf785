"""HierR with seeded noise on the summary reward alone: the experiment behind `compare.py`.

The noise of a rollout depends only on the noise seed, the row, the rollout's place in its group and the
step, so every method sees the same noise on the same rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verl_slca.adapters.reward_manager import HierrRewardManager
from verl_slca.adapters.segmented_output import SUMMARY_REWARD
from verl_slca.errors import ConfigError
from verl_slca.rows import Row
from verl_slca.seeds import derived_seed
from verl_slca.trajectory import Trajectory


class NoisySummaryRewardManager(HierrRewardManager):
    """`hierr`, plus N(0, sd) on `summary_reward`; sd and seed from ``+reward.summary_noise.{sd,seed}``."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        noise = config.reward.get("summary_noise")
        if noise is None:
            raise ConfigError("NoisySummaryRewardManager needs +reward.summary_noise.sd and .seed")
        self.noise_sd, self.noise_seed = float(noise.sd), int(noise.seed)

    async def result(self, trajectory: Trajectory, row: Row, fields: Mapping[str, Any]) -> dict[str, Any]:
        """HierR's result with a noisy summary reward and total."""
        result = await super().result(trajectory, row, fields)
        info = result["reward_extra_info"]
        if info.get(SUMMARY_REWARD) is None:
            return result
        seed = derived_seed(self.noise_seed, row.key, int(fields["session_id"]), int(fields["global_steps"]))
        noise = self.noise_sd * float(np.random.default_rng(seed).standard_normal())
        return {
            "reward_score": result["reward_score"] + noise,
            "reward_extra_info": {**info, SUMMARY_REWARD: info[SUMMARY_REWARD] + noise, "summary_noise": noise},
        }
