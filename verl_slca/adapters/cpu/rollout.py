"""``rollout.name=transformers``: starts the servers and carries new weights from the trainer to them."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry


def register() -> None:
    """The rollout backend `transformers` known to verl, and `vllm` as it has to be on a CPU."""
    RolloutReplicaRegistry.register("transformers", lambda: TransformersReplica)
    RolloutReplicaRegistry.register("vllm", _vllm_replica)


def _vllm_replica() -> type[RolloutReplica]:
    from verl_slca.adapters.cpu.vllm_rollout import CpuVllmReplica

    return CpuVllmReplica


def _server_name(replica_rank: int) -> str:
    return f"transformers_server_{replica_rank}"


class TransformersReplica(RolloutReplica):
    """One server actor, on the node of the replica's first worker."""

    async def launch_servers(self) -> None:
        from verl_slca.adapters.cpu.server import TransformersServer

        if self.world_size != 1:
            raise ValueError(
                f"rollout.name=transformers runs one process per replica, got a world size of {self.world_size}: set "
                "rollout.{tensor,pipeline}_model_parallel_size=1 and rollout.data_parallel_size=1"
            )
        node = await self.workers[0].__ray_call__.remote(lambda self: ray.get_runtime_context().get_node_id())
        server = (
            ray.remote(TransformersServer)
            .options(
                scheduling_strategy=ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False),
                name=_server_name(self.replica_rank),
                max_concurrency=self.max_concurrency,
            )
            .remote(self.config, self.model_config, self.replica_rank)
        )
        await server.ready.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = _server_name(self.replica_rank)


class TransformersAdapter(BaseRollout):
    """The trainer's side of a replica: sends weights, in chunks of the configured bucket size."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        self.replica_rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank
        self.is_leader_rank = True

    async def resume(self, tags: list[str]) -> None:
        """Nothing: there is no device memory to take back."""

    async def release(self) -> None:
        """Nothing: there is no device memory to free."""

    @torch.no_grad()
    async def update_weights(
        self,
        weights: Generator[tuple[str, torch.Tensor], None, None],
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **kwargs: Any,
    ) -> None:
        """All of `weights` in the server's model, and the step they are of.

        Raises:
            NotImplementedError: weights that are not full named tensors (LoRA adapters, deltas).
        """
        if wire_format != "named_tensors" or kwargs.get("peft_config") is not None:
            raise NotImplementedError(
                "rollout.name=transformers takes full weights only: set model.lora.merge=True, or "
                "checkpoint_engine.backend=naive"
            )
        server = ray.get_actor(_server_name(self.replica_rank))
        limit = self.config.checkpoint_engine.update_weights_bucket_megabytes << 20
        chunk: dict[str, torch.Tensor] = {}
        size = 0
        for name, tensor in weights:
            if chunk and size + tensor.nbytes > limit:
                await server.update_weights.remote(chunk)
                chunk, size = {}, 0
            chunk[name] = tensor
            size += tensor.nbytes
        await server.update_weights.remote(chunk)
        if global_steps is not None:
            await server.set_global_steps.remote(global_steps)
