"""What stock verl needs to train without a GPU; active only with ``VERL_PLATFORM=cpu``.

platform.py    verl's platform "cpu" (official registry)
engine.py      its FSDP2 training engine for that device (official registry)
rollout.py     the rollout backend `transformers`: replica and weight sync (official registry)
server.py      the Ray actor that generates, around `verl_slca.cpu_engine`
sampler.py     a replay buffer that polls faster and hands rows on in a fixed order (official setting)
workarounds.py the few places where verl 0.9.1 has no extension point
"""

from __future__ import annotations

import os
import warnings

from verl_slca.reproducible import use_reproducible_kernels


def register() -> None:
    """Everything above registered with the verl of this process."""
    # TransferQueue wants 8 threads per request and warns, several times a step, where there are fewer cores.
    os.environ.setdefault("TQ_NUM_THREADS", "1")
    use_reproducible_kernels()

    # The platform first: verl asks for it as soon as one of the modules the others need is imported.
    from verl_slca.adapters.cpu import platform, workarounds

    platform.register()
    workarounds.register()

    with warnings.catch_warnings():
        # One warning per training engine that is not installed, in each of six processes.
        warnings.filterwarnings("ignore", message=".* engine is not available")
        from verl_slca.adapters.cpu import engine, rollout

    engine.register()
    rollout.register()
