"""`trainer.v1.trainer_mode=slca_sync`: verl's synchronous trainer that also logs what HierR and SGLS saw.

The estimator works under any of verl's trainers. This one adds, for every training step, the mean of each
number the reward function returned in `reward_extra_info`, and the count of rollouts lost to each kind of
infrastructure fault; in validation a lost rollout has no reward instead of 0.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from verl.trainer.ppo.v1 import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from verl_slca.adapters.segmented_output import FAULT


@register_trainer("slca_sync")
class SlcaTrainerSync(PPOTrainerSync):
    """`PPOTrainerSync` with rollout metrics under ``rollout/`` and ``faults/``."""

    def __init__(self, config: DictConfig, *args: Any, **kwargs: Any) -> None:
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"  # verl branches on this name, not on the class
        super().__init__(config, *args, **kwargs)

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        fields = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        extra_fields = fields.pop("extra_fields").tolist()
        metrics.update(rollout_metrics(extra.get("reward_extra_info", {}) for extra in extra_fields))

    def _val_metrics_update(
        self, data_sources: list, sample_uids: list, infos: dict[str, list], *args: Any, **kwargs: Any
    ) -> dict[str, float]:
        faults = infos.pop(FAULT, [])
        if faults:
            infos["reward"] = [None if lost else r for lost, r in zip(faults, infos["reward"], strict=True)]
        metrics = super()._val_metrics_update(data_sources, sample_uids, infos, *args, **kwargs)
        return metrics | fault_metrics(faults, prefix="val-faults")


def rollout_metrics(infos: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Mean of every finite number over the rollouts that have it, and fault counts.

    Args:
        infos: one `reward_extra_info` per rollout.

    Example:
        >>> rollout_metrics([{"process": 1.0, "fault": ""}, {"process": None, "fault": "judge_timeout"}])
        {'rollout/process/mean': 1.0, 'faults/lost': 1.0, 'faults/judge_timeout': 1.0}
    """
    values: dict[str, list[float]] = defaultdict(list)
    faults: list[Any] = []
    for info in infos:
        faults.append(info.get(FAULT))
        for key, value in info.items():
            if isinstance(value, int | float) and math.isfinite(value):
                values[key].append(float(value))
    means = {f"rollout/{key}/mean": sum(found) / len(found) for key, found in sorted(values.items())}
    return means | fault_metrics(faults, prefix="faults")


def fault_metrics(faults: Iterable[Any], prefix: str) -> dict[str, float]:
    """Number of lost rollouts, in total and by kind of fault."""
    counts = Counter(str(fault) for fault in faults if fault)
    total = {f"{prefix}/lost": float(sum(counts.values()))}
    return total | {f"{prefix}/{kind}": float(count) for kind, count in sorted(counts.items())}
