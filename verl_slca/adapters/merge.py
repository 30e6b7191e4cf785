"""`python -m verl_slca.adapters.merge merge ...`: verl's model merger, its weights in the precision they were saved in.

verl 0.9.1 casts every shard to bfloat16 on merging (verl/model_merger/fsdp_model_merger.py,
``_load_and_merge_state_dicts``), which changes a policy trained in float32. Here the cast does nothing. If verl
casts in another way, this refuses to run, so that no weights are rounded in silence.
"""

from __future__ import annotations

import inspect
import sys

import torch
from verl.model_merger.__main__ import main
from verl.model_merger.fsdp_model_merger import FSDPModelMerger

_CASTS = 2
"""Places where the merger casts: DTensor shards, and plain tensors."""


def merge() -> None:
    """verl's own command, with the arguments of this process."""
    source = inspect.getsource(FSDPModelMerger._load_and_merge_state_dicts)
    if source.count(".bfloat16()") != _CASTS or ".to(" in source:
        sys.exit("this verl merges checkpoints in another way than 0.9.1; merge with `python -m verl.model_merger`")
    torch.Tensor.bfloat16 = _unchanged  # type: ignore[method-assign, assignment]
    main()


def _unchanged(self: torch.Tensor) -> torch.Tensor:
    return self


if __name__ == "__main__":
    merge()
