"""verl's platform "cpu": the host processor presented as the one accelerator of a node.

verl asks the platform for everything that depends on the device. Ray is told of a GPU that does not exist
(`ray_kwargs.ray_init.num_gpus`), since verl 0.9.1 counts only GPUs and NPUs when it places its workers
(`single_controller/ray/base.py:230`).
"""

from __future__ import annotations

import os
import platform as host
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


def register() -> None:
    """``VERL_PLATFORM=cpu`` known to verl."""
    PlatformRegistry.register("cpu")(CpuPlatform)


def _device_module() -> ModuleType:
    """`torch.cpu` and the functions verl calls on `torch.cuda` that `torch.cpu` lacks.

    Memory figures are those of the process and the host: they feed verl's `perf/` metrics.
    """
    module = ModuleType("verl_slca_cpu_device", "torch.cpu with the memory, name and RNG functions of torch.cuda")
    module.__dict__.update({name: value for name, value in vars(torch.cpu).items() if not name.startswith("__")})
    module.__dict__.update(
        empty_cache=lambda: None,
        ipc_collect=lambda: None,
        reset_peak_memory_stats=lambda *_: None,
        set_per_process_memory_fraction=lambda *_: None,
        get_device_name=lambda *_: host.processor() or host.machine(),
        get_rng_state=lambda *_: torch.get_rng_state(),
        set_rng_state=lambda state, *_: torch.set_rng_state(state),
        manual_seed=torch.manual_seed,
        manual_seed_all=torch.manual_seed,
        memory_allocated=lambda *_: psutil.Process().memory_info().rss,
        memory_reserved=lambda *_: psutil.Process().memory_info().rss,
        max_memory_allocated=_peak_memory,
        max_memory_reserved=_peak_memory,
        mem_get_info=lambda *_: (psutil.virtual_memory().available, psutil.virtual_memory().total),
    )
    return module


def _peak_memory(*_: Any) -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class CpuPlatform(PlatformBase):
    """One CPU "device" per process; the index is the string "cpu", which torch takes wherever verl puts it."""

    _module = _device_module()

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        return self._module

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """False: verl never picks this platform by itself, only ``VERL_PLATFORM=cpu`` does."""
        return False

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def rollout_env_vars(self) -> dict[str, str]:
        """For vLLM only: 1 GB of keys and values, where its own default is half the machine's memory."""
        return {"VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1")}

    def cudart(self) -> None:
        return None
