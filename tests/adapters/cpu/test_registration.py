import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("verl")
pytestmark = pytest.mark.verl

PROBE = """
import verl
from verl.plugin.platform import get_platform
from verl.utils.device import get_torch_device
from verl.workers.engine import EngineRegistry
from verl.workers.rollout.base import get_rollout_class
from verl.workers.rollout.replica import RolloutReplicaRegistry
from verl_slca.adapters import cpu
cpu.register()  # a second time changes nothing
assert get_platform().device_name == "cpu"
assert get_torch_device().mem_get_info()[1] > 0
assert EngineRegistry.get_engine_cls("language_model", "fsdp2").__name__ == "CpuFSDPEngine"
assert get_rollout_class("transformers").__name__ == "TransformersAdapter"
assert RolloutReplicaRegistry.get("transformers").__name__ == "TransformersReplica"
import os, torch
from verl.utils import distributed
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
assert distributed.initialize_global_process_group() == (0, 0, 1)
assert "gloo" in torch.distributed.get_backend()
torch.distributed.destroy_process_group()
"""


def test_with_verl_platform_cpu_importing_verl_is_all_it_takes():
    run = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={**os.environ, "VERL_PLATFORM": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-2000:]


def test_a_batch_is_ordered_by_prompt_and_session_whatever_finished_first(monkeypatch):
    from transfer_queue import KVBatchMeta
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    from verl_slca.adapters.cpu.sampler import PromptReplayBuffer

    finished = ["b_10_0", "a_1_0", "b_2_0", "a_0_1", "a_0_0"]
    batch = KVBatchMeta(partition_id="train", keys=finished, tags=[{"key": key} for key in finished])
    monkeypatch.setattr(ReplayBuffer, "_materialize_batch", lambda self, *args: batch)
    buffer = PromptReplayBuffer.__new__(PromptReplayBuffer)
    buffer.prompt_global_steps = {"train": {"b": 1, "a": 1}}
    ordered = buffer._materialize_batch("train", ["a", "b"], {})
    assert ordered.keys == ["b_2_0", "b_10_0", "a_0_0", "a_0_1", "a_1_0"]
    assert [tag["key"] for tag in ordered.tags] == ordered.keys


def test_the_reference_model_is_not_offloaded_with_pinned_memory(monkeypatch):
    from verl.workers.config import FSDPEngineConfig
    from verl.workers.engine import FSDPEngineWithLMHead

    from verl_slca.adapters.cpu.engine import CpuFSDPEngine

    seen = []

    def stock(self, module):
        seen.append((self.engine_config.forward_only, self.engine_config.offload_policy))
        return module

    monkeypatch.setattr(FSDPEngineWithLMHead, "_build_fsdp_module", stock)
    monkeypatch.setattr(FSDPEngineWithLMHead, "__init__", lambda self: None)
    engine = CpuFSDPEngine()
    engine.engine_config = configured = FSDPEngineConfig(forward_only=True, strategy="fsdp2")
    engine._build_fsdp_module(torch.nn.Identity())
    assert seen == [(False, False)]
    assert engine.engine_config is configured
