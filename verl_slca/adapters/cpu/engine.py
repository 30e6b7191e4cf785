"""verl's FSDP2 engine registered for the CPU."""

from __future__ import annotations

import dataclasses

import torch
from verl.workers.config import FSDPEngineConfig
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead


def register() -> None:
    """``strategy=fsdp2`` known to verl on device "cpu"; a second call changes nothing."""
    if "cpu" not in EngineRegistry._engines.get("language_model", {}).get("fsdp2", {}):
        EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")(CpuFSDPEngine)


class CpuFSDPEngine(FSDPEngineWithLMHead):
    """The stock engine, without offloading: the parameters are on the CPU already.

    verl offloads the reference model with pinned memory (`transformer_impl.py:462`), which needs a GPU.
    """

    engine_config: FSDPEngineConfig

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        configured = self.engine_config
        self.engine_config = dataclasses.replace(configured, forward_only=False, offload_policy=False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = configured
