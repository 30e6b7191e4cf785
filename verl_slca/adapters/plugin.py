"""The `verl.plugins` entry point: importing this module registers everything in the installed verl.

verl swallows whatever an entry point raises, so a user would only see "Unknown advantage estimator". The
reason is therefore printed here, in one line, before the error goes on to verl.
"""

from __future__ import annotations

import os
import sys


def _register() -> None:
    if os.environ.get("VERL_PLATFORM") == "cpu":
        # First: verl asks for its platform as soon as one of the modules the rest needs is imported.
        from verl_slca.adapters import cpu

        cpu.register()
    from verl_slca.adapters import agent_loop, estimators, reward_manager, segmented_output, trainer

    del agent_loop, estimators, reward_manager, segmented_output, trainer


try:
    _register()
except Exception as error:
    print(f"verl-slca could not load into verl: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    raise
