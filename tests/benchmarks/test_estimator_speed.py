"""What `slca` costs beside verl's own `grpo` estimator, on the same tensors.

    pytest tests/benchmarks --benchmark-columns=min,median,stddev

prints both times in one table, the ratio in brackets. Time is reported, not asserted; memory is asserted.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from verl_slca.adapters.token_rewards import place

pytest.importorskip("verl")

B, T, G = 1024, 8192, 16
pytestmark = [pytest.mark.verl, pytest.mark.slow]


def batch():
    """(token rewards, response mask, uids) of rollouts with 0 to 8 calls; some cut off, some without an answer."""
    generator = np.random.default_rng(0)
    mask, rewards = torch.zeros(B, T, dtype=torch.int64), torch.zeros(B, T)
    for row in range(B):
        end = 0
        calls = int(generator.integers(0, 9))
        for _ in range(calls + 1):
            turn, observation = generator.integers(30, 500), generator.integers(20, 800)
            mask[row, end : end + turn] = 1
            end += int(turn + observation)
        cut_off = end > T or generator.random() < 0.05
        runs = int((mask[row].diff() == 1).sum()) + 1
        tool = generator.random() if runs > 1 or cut_off else None
        rewards[row] = place(mask[row], tool, None if cut_off else generator.random())
    return rewards, mask, np.repeat([f"{group:036x}" for group in range(B // G)], G).astype(object)


@pytest.fixture(scope="module")
def inputs():
    return batch()


@pytest.mark.benchmark(group=f"estimators, B={B}, T={T}, G={G}")
@pytest.mark.parametrize("name", ["grpo", "slca", "slca_toolpo", "slca_rltr"])
def test_time(benchmark, inputs, name):
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    from verl_slca.adapters import estimators

    assert estimators.slca is get_adv_estimator_fn("slca")
    rewards, mask, uids = inputs
    arguments = {"token_level_rewards": rewards, "response_mask": mask, "index": uids, "config": {}}
    advantages, _ = benchmark.pedantic(get_adv_estimator_fn(name), kwargs=arguments, rounds=7, warmup_rounds=1)
    assert advantages.shape == (B, T)


MEASURE_PEAK = """
import sys
sys.path.insert(0, sys.argv[1])
from test_estimator_speed import batch
from verl_slca.adapters.estimators import slca

def status(field):
    [line] = [line for line in open("/proc/self/status") if line.startswith(field)]
    return int(line.split()[1]) * 1024

rewards, mask, uids = batch()
open("/proc/self/clear_refs", "w").write("5")  # the peak starts again from here
before = status("VmRSS")
slca(rewards, mask, uids)
inputs = rewards.nbytes + mask.nbytes
print((status("VmHWM") - before) / inputs)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux to reset the peak of a process")
def test_peak_memory_stays_within_three_times_the_inputs():
    done = subprocess.run(
        [sys.executable, "-c", MEASURE_PEAK, str(Path(__file__).parent)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    beyond_inputs = float(done.stdout.split()[-1])
    assert 1 + beyond_inputs <= 3, f"inputs and {beyond_inputs:.2f} times their size on top"
