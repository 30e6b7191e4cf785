"""`trainer.v1.trainer_mode=slca_sync`: verl's synchronous trainer that also logs what HierR and SGLS saw.

The estimator works under any of verl's trainers. This one adds, for every training step, the mean of each
number the reward function returned in `reward_extra_info`, the simulator's figures, and the count of rollouts
lost to each kind of infrastructure fault; the dumped rollouts carry the same numbers. A lost rollout has no score,
where verl's own metrics, dumps and validation would have counted a 0. A rollout that was asked for and never came
back, which verl pads over, is lost too. When too many rollouts of a step are lost it stops, since the rest would
be learning from noise; so it does when step after step teaches nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from verl.trainer.ppo.v1 import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from verl_slca.adapters.agent_loop import SGLS_FIGURES
from verl_slca.adapters.estimators import slca_config
from verl_slca.adapters.lost import NEVER_RETURNED, Silence, fault_metrics, never_returned, require_enough_left
from verl_slca.adapters.segmented_output import FAULT
from verl_slca.sgls import figures


@register_trainer("slca_sync")
class SlcaTrainerSync(PPOTrainerSync):
    """`PPOTrainerSync` with metrics under ``rollout/``, ``sgls/`` and ``faults/``, and a limit on lost rollouts."""

    def __init__(self, config: DictConfig, *args: Any, **kwargs: Any) -> None:
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"  # verl branches on this name, not on the class
        settings = slca_config(config.algorithm)
        self._max_lost_share = settings.max_lost_share
        self._silence = Silence(settings.max_silent_steps)
        self._infos: dict[str, dict[str, Any]] = {}
        super().__init__(config, *args, **kwargs)

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        # Before verl pads the batch, and before anything is computed on what is left of it.
        infos = [_info(extra) for extra in _extra_fields(batch).values()]
        asked = self._asked(metrics) // self.parameter_sync_step
        require_enough_left(infos + never_returned(batch.keys, asked), self._max_lost_share)
        return super()._balance_batch(batch, metrics, *args, **kwargs)

    def _asked(self, metrics: Mapping[str, Any]) -> int:
        evicted = int(metrics.get("training/rollout_failure/evicted_samples", 0))
        return (self.config.data.train_batch_size + evicted) * self.config.actor_rollout_ref.rollout.n

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        extra_fields = _extra_fields(batch)
        self._infos = {key: _info(extra) for key, extra in extra_fields.items()}  # the step's rollouts are dumped next
        kept = [key for key, info in self._infos.items() if not info.get(FAULT)]
        if len(kept) < len(self._infos):
            metrics.update(token_metrics(batch.partition_id, kept))
        if scores := [self._infos[key]["score"] for key in kept if self._infos[key].get("score") is not None]:
            metrics.update(_spread("score", scores))  # one name, one number, wherever on the tokens its parts lie
        asked = [*self._infos.values(), *never_returned(list(self._infos), self._asked(metrics))]
        metrics.update(rollout_metrics(asked))
        metrics.update(figures.metrics(extra.get(SGLS_FIGURES) or {} for extra in extra_fields.values()))
        self._silence.look(metrics, (extra.get("trajectory") for extra in extra_fields.values()))

    def _dump_generations(
        self, *, scores: list[float], reward_extra_infos_dict: dict[str, list], **columns: Any
    ) -> None:
        found = [self._infos.get(key, {}) for key in reward_extra_infos_dict["uid"]]  # {}: validation, or padding
        names = dict.fromkeys(name for info in found for name in info)
        infos = {name: [info.get(name) for info in found] for name in names} | reward_extra_infos_dict
        lost = infos.get(FAULT, [""] * len(scores))
        kept = [None if fault else score for fault, score in zip(lost, scores, strict=True)]
        super()._dump_generations(scores=kept, reward_extra_infos_dict=infos, **columns)

    def _val_metrics_update(
        self,
        data_sources: list,
        sample_uids: list,
        infos: dict[str, list],
        sample_turns: list,
        expected_acc_counts: Mapping[tuple[str, str], int] | None = None,
    ) -> dict[str, float]:
        faults = infos.pop(FAULT, [])
        if faults:
            infos["reward"] = [None if lost else r for lost, r in zip(faults, infos["reward"], strict=True)]
        gone = max(sum((expected_acc_counts or {}).values()) - len(sample_uids), 0)
        asked = [*faults, *[NEVER_RETURNED] * gone]
        require_enough_left([{FAULT: fault} for fault in asked], self._max_lost_share, of="validation")
        metrics = super()._val_metrics_update(
            data_sources, sample_uids, infos, sample_turns, expected_acc_counts=expected_acc_counts
        )
        return metrics | fault_metrics(asked, prefix="val-faults")


def _extra_fields(batch: Any) -> dict[str, dict[str, Any]]:
    """What agent loop and reward function sent along, by rollout; rows that pad the batch are none."""
    keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
    if not keys:
        return {}
    fields = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
    return dict(zip(keys, fields.pop("extra_fields").tolist(), strict=True))


def _info(extra: Mapping[str, Any]) -> dict[str, Any]:
    return extra.get("reward_extra_info") or {}


def token_metrics(partition: str, keys: Sequence[str]) -> dict[str, float]:
    """verl's metrics of scores and rewards on tokens over these rollouts alone; {} for none."""
    if not keys:
        return {}
    fields = {"score": "rm_scores", "rewards": "token_level_rewards"}
    data = tq.kv_batch_get(keys=list(keys), partition_id=partition, select_fields=list(fields.values()))
    # verl stores rewards of their own only where they differ from the scores.
    rows = {name: data.get(field, data["rm_scores"]).unbind() for name, field in fields.items()}
    sums = {name: [float(row.sum()) for row in found] for name, found in rows.items()}
    return _spread("score", sums["score"]) | _spread("rewards", sums["rewards"])


def _spread(name: str, found: Sequence[float]) -> dict[str, float]:
    return {
        f"critic/{name}/mean": sum(found) / len(found),
        f"critic/{name}/max": max(found),
        f"critic/{name}/min": min(found),
    }


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
