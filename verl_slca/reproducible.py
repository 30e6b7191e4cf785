"""Bit for bit the same numbers from the same inputs, whatever else is computed beside them.

MKL picks another kernel, and with it another order of summation, when a matrix has few rows: without this the
log-probabilities of a completion depend in their last bits on how many others are generated at that moment.
What `cpu_engine` adds: whole steps of cache, and even numbers of tokens. Threads have to be set to one
(``OMP_NUM_THREADS=1``, as the recipes do): several cut a tensor where vectors do not end.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch


def use_reproducible_kernels() -> bool:
    """MKL told to sum in one order for every number of rows; has to come before its first product.

    A value of ``MKL_CBWR`` set by the user stays. On other processors than Intel's MKL has the one order only in a
    kernel several times slower: nothing happens, and completions repeat up to floating-point ties.

    Returns:
        Whether this processor has such kernels.
    """
    capability = torch.backends.cpu.get_cpu_capability()
    if capability not in ("AVX2", "AVX512") or not _made_by_intel():
        return False
    os.environ.setdefault("MKL_CBWR", f"{capability},STRICT")
    return True


def _made_by_intel() -> bool:
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
