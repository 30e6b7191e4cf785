"""The entry point in a fresh process: everything is registered, or the reason is said in one line."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("verl")
pytestmark = pytest.mark.verl

REGISTERED = """
import verl
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
from verl.trainer.ppo.v1 import get_trainer_cls
for name in ("slca", "slca_toolpo", "slca_rltr"):
    get_adv_estimator_fn(name)
get_reward_manager_cls("hierr")
assert "slca_agent" in _agent_loop_registry
get_trainer_cls("slca_sync")
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "VERL_PLATFORM": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_importing_verl_registers_everything():
    result = python(REGISTERED)
    assert result.returncode == 0, result.stderr[-2000:]


def test_a_plugin_that_cannot_load_says_why_in_one_line():
    result = python("import sys; sys.modules['verl_slca.advantages'] = None; import verl")
    lines = [line for line in result.stderr.splitlines() if line.startswith("verl-slca could not load into verl: ")]
    assert len(lines) == 1
    assert "verl_slca.advantages" in lines[0]
