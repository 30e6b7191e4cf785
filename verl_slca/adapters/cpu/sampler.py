"""A replay buffer for ``trainer.v1.sampler.custom_sampler``: polls often, and orders the batch.

Stock verl looks every 2 s whether the rollouts are done, half the time of a step of a small model. And it
hands them on in the order they finished, so that the sums of two equal runs differ in the last bits.
"""

from __future__ import annotations

from typing import Any

from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

POLL_SECONDS = 0.1


class PromptReplayBuffer(ReplayBuffer):
    """The stock sampler of the sync trainer, with another poll interval and rows by prompt and session."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("poll_interval", POLL_SECONDS)
        super().__init__(*args, **kwargs)

    def _materialize_batch(
        self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: dict[str, dict]
    ) -> KVBatchMeta:
        batch = super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)
        arrival = {uid: place for place, uid in enumerate(self.prompt_global_steps[partition_id])}

        def place(item: tuple[str, dict]) -> tuple[int, list[int]]:
            uid, *numbers = item[0].split("_")
            return arrival[uid], [int(number) for number in numbers]

        ordered = sorted(zip(batch.keys, batch.tags, strict=True), key=place)
        return KVBatchMeta(
            partition_id=partition_id, keys=[key for key, _ in ordered], tags=[tag for _, tag in ordered]
        )
