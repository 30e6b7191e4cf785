"""What the adapters rely on in verl, checked against the installed one; a message names what changed."""

import inspect
from pathlib import Path

import numpy as np
import pytest

verl = pytest.importorskip("verl")
pytestmark = pytest.mark.verl


def parameters(function) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def abstract_methods(cls) -> set[str]:
    return set(cls.__abstractmethods__)


def test_the_version_is_the_one_everything_here_was_read_from():
    assert verl.__version__ == "0.9.1", f"verl {verl.__version__}: read this file's failures, then pin the new version"


def test_plugins_are_entry_points_of_the_group_verl_plugins_loaded_on_import():
    source = Path(verl.__file__).read_text()
    assert 'group="verl.plugins"' in source, "verl no longer loads entry points of the group verl.plugins"


def test_an_estimator_gets_rewards_mask_index_and_config_and_nothing_else(monkeypatch):
    import torch
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.trainer.ppo import core_algos
    from verl.trainer.ppo.v1 import utils

    monkeypatch.setattr(core_algos, "ADV_ESTIMATOR_REGISTRY", dict(core_algos.ADV_ESTIMATOR_REGISTRY))
    seen = {}

    @core_algos.register_adv_est("contract_probe")
    def probe(**kwargs):
        seen.update(kwargs)
        return kwargs["token_level_rewards"], kwargs["token_level_rewards"]

    data = DataProto.from_dict(
        {"token_level_rewards": torch.zeros(2, 3), "response_mask": torch.ones(2, 3, dtype=torch.int64)},
        {"uid": np.array(["a", "a"], dtype=object)},
    )
    config = OmegaConf.create({"slca": {"lambda_tool": 1.0}})
    keys = ["a_0_0", "a_1_0"]
    utils.compute_advantage_for_multi_trajectories(
        data, keys, adv_estimator="contract_probe", gamma=1.0, lam=1.0, num_repeat=2,
        norm_adv_by_std_in_grpo=True, config=config,
    )  # fmt: skip
    assert set(seen) == {"token_level_rewards", "response_mask", "index", "config"}, f"estimators now get {set(seen)}"
    assert seen["config"].slca.lambda_tool == 1.0, "keys of ours under `algorithm` no longer arrive"
    assert seen["index"].dtype == object


def test_a_reward_is_one_scalar_on_the_last_token_unless_as_dict_is_overridden():
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    output = AgentLoopOutput(
        prompt_ids=[1], response_ids=[2, 3, 4], response_mask=[1, 0, 1], reward_score=0.5, metrics=AgentLoopMetrics()
    )
    fields = output.as_dict()
    assert fields["rm_scores"].tolist() == [0.0, 0.0, 0.5], "AgentLoopOutput.as_dict no longer writes rm_scores so"
    assert {"prompts", "responses", "response_mask", "extra_fields"} <= set(fields)


def test_a_rollout_is_scored_before_as_dict_is_called():
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    worker = AgentLoopWorkerTQ.__ray_metadata__.modified_class
    source = inspect.getsource(worker._agent_loop_postprocess)
    assert 0 < source.find("_compute_score") < source.find("as_dict()"), "the order of scoring and as_dict changed"


def test_an_agent_loop_is_registered_by_name_and_run_with_the_row_and_its_session():
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopWorker, register
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    assert abstract_methods(AgentLoopBase) == {"run"}
    assert parameters(AgentLoopBase.run) == ["sampling_params", "kwargs"]
    assert parameters(register) == ["agent_name"]
    assert "agent_loop.run(sampling_params, **kwargs)" in inspect.getsource(AgentLoopWorker._run_agent_loop)
    source = inspect.getsource(AgentLoopWorkerTQ.__ray_metadata__.modified_class._run_prompt)
    assert "session_id=i, **prompt" in source, "a rollout is no longer told which member of its group it is"


def test_a_reward_manager_scores_one_row():
    from verl.experimental.reward_loop.reward_manager import register
    from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

    assert abstract_methods(RewardManagerBase) == {"run_single"}
    assert parameters(RewardManagerBase.run_single) == ["data"]
    assert parameters(RewardManagerBase.__init__)[:3] == ["config", "tokenizer", "compute_score"]
    assert parameters(register) == ["name"]


def test_a_reward_manager_sees_the_extra_fields_of_the_rollout():
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    source = inspect.getsource(AgentLoopWorker._compute_score)
    assert '"tool_extra_fields"' in source, "reward managers no longer get extra_fields as tool_extra_fields"


def test_a_trainer_is_registered_by_name_and_computes_advantages_in_one_method():
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    assert parameters(register_trainer) == ["name"]
    assert issubclass(PPOTrainerSync, PPOTrainer)
    assert parameters(PPOTrainer._compute_advantage) == ["batch", "metrics"]
    assert {"scores", "reward_extra_infos_dict"} <= set(parameters(PPOTrainer._dump_generations))
    assert parameters(PPOTrainer._log_rollout_data) == ["batch", "timing_raw", "rollout_data_dir"]
    fit = inspect.getsource(PPOTrainer.fit)
    assert 0 < fit.index("self._compute_metrics(") < fit.index("self._log_rollout_data("), "dumps come before metrics"


def test_a_sampler_of_ours_can_be_named_in_the_config():
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    assert "load_extern_type(custom_sampler.path, custom_sampler.name)" in inspect.getsource(
        PPOTrainer._build_replay_buffer
    )
    assert inspect.signature(ReplayBuffer).parameters["poll_interval"].default == 2.0
    assert parameters(ReplayBuffer._materialize_batch) == [
        "partition_id",
        "selected_prompt_uids",
        "partition_snapshot",
    ]


def test_a_dataset_of_ours_can_be_named_in_the_config():
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset, get_dataset_class

    named = {"custom_cls": {"path": "pkg://verl.utils.dataset.rl_dataset", "name": "RLHFDataset"}}
    assert get_dataset_class(OmegaConf.create(named)) is RLHFDataset, "data.custom_cls no longer names a dataset class"


def test_a_rollout_replica_only_has_to_launch_servers():
    from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

    assert abstract_methods(RolloutReplica) == {"launch_servers"}
    assert parameters(RolloutReplicaRegistry.register) == ["name", "loader"]
    assert {"token_ids", "log_probs", "stop_reason", "extra_fields"} <= set(TokenOutput.model_fields)


def test_a_rollout_adapter_resumes_releases_and_updates_weights():
    from verl.workers.rollout.base import BaseRollout

    assert abstract_methods(BaseRollout) == {"resume", "release", "update_weights"}
    assert parameters(BaseRollout.update_weights) == ["weights", "wire_format", "kwargs"]


def test_sampling_parameters_reach_the_server_as_the_agent_loop_wrote_them():
    from verl.workers.rollout.llm_server import LLMServerClient

    source = inspect.getsource(inspect.unwrap(LLMServerClient.generate))
    assert "sampling_params=sampling_params" in source, "a seed in sampling_params no longer reaches the server"
    assert "server.generate.remote(" in source


def test_an_engine_is_registered_for_a_device():
    from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead

    assert parameters(EngineRegistry.register) == ["model_type", "backend", "device", "vendor"]
    source = inspect.getsource(FSDPEngineWithLMHead._build_fsdp_module)
    assert "self.engine_config.offload_policy or self.engine_config.forward_only" in source, (
        "when FSDP2 offloads has changed: see CpuFSDPEngine"
    )


def test_rows_that_failed_are_padding_without_a_learnable_token():
    import torch
    from verl.trainer.ppo.padding_utils import construct_minimal_padding_template, upsample_batch_to_divisible_size

    row, tag = construct_minimal_padding_template({"position_ids": torch.arange(5)}, {}, eos_token_id=2)
    assert row["response_mask"].sum() == 0, "padding rows now train a token: estimators must leave them out by uid"
    assert row["rm_scores"].sum() == 0
    assert tag["is_padding"]
    assert 'f"pad{' in inspect.getsource(upsample_batch_to_divisible_size), "padding rows have another uid"
