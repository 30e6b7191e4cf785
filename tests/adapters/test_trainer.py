"""What `slca_sync` adds to verl's trainer: it stops when too much is lost, and sums the simulator's figures."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl")

import torch
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from verl_slca.adapters import trainer
from verl_slca.adapters.lost import Silence, never_returned, require_enough_left
from verl_slca.adapters.trainer import SlcaTrainerSync
from verl_slca.errors import ConfigError, InfrastructureFault
from verl_slca.sgls.figures import ToolFigures, to_dict

pytestmark = pytest.mark.verl


def infos(*faults: str) -> list[dict[str, Any]]:
    return [{"fault": fault, "process": 1.0} for fault in faults]


def test_a_step_that_lost_too_much_stops_with_kinds_and_counts():
    lost = infos("judge_timeout", "simulator_unreachable", "judge_timeout", "", "")
    with pytest.raises(InfrastructureFault, match=r"3 of the 5 .*judge_timeout: 2, simulator_unreachable: 1.*=0\.5"):
        require_enough_left(lost, 0.5)


@pytest.mark.parametrize(("lost", "share"), [(0, 0.5), (2, 0.5), (4, 1.0)])
def test_up_to_the_share_training_goes_on(lost, share):
    require_enough_left(infos(*["judge_timeout"] * lost, *[""] * (4 - lost)), share)


class Queue:
    """The one call of verl's transfer queue that the trainer makes; each reward is on two tokens."""

    def __init__(self, extra_fields: list[dict[str, Any]]) -> None:
        self.extra_fields = extra_fields

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
        found = [self.extra_fields[int(key.split("_")[0])] for key in keys]
        if select_fields == ["extra_fields"]:
            return {"extra_fields": SimpleNamespace(tolist=lambda: found)}
        rows = [torch.tensor([extra["reward"], 1.0]) for extra in found]
        return {"rm_scores": torch.nested.nested_tensor(rows, layout=torch.jagged)}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a trainer over given extra fields, verl's own part left out."""

    def init(self: PPOTrainerSync, config: Any) -> None:
        self.config, self.parameter_sync_step = config, 1

    def validated(self: PPOTrainerSync, *args: Any, **kwargs: Any) -> dict[str, float]:
        return {}

    monkeypatch.setattr(PPOTrainerSync, "__init__", init)
    monkeypatch.setattr(PPOTrainerSync, "_balance_batch", lambda self, batch, metrics: "balanced")
    monkeypatch.setattr(PPOTrainerSync, "_val_metrics_update", validated)
    monkeypatch.setattr(PPOTrainerSync, "_compute_metrics", lambda self, batch, metrics: None)
    monkeypatch.setattr(PPOTrainerSync, "_dump_generations", lambda self, **columns: setattr(self, "dumped", columns))

    def make(
        extra_fields: list[dict[str, Any]], slca: dict[str, Any], padding: int = 0, asked: int | None = None
    ) -> tuple[SlcaTrainerSync, Any]:
        monkeypatch.setattr(trainer, "tq", Queue(extra_fields))
        rows = len(extra_fields)
        config = OmegaConf.create(
            {
                "algorithm": {"slca": slca},
                "trainer": {"v1": {"trainer_mode": "slca_sync"}},
                "data": {"train_batch_size": rows if asked is None else asked},
                "actor_rollout_ref": {"rollout": {"n": 1}},
            }
        )
        tags = [{"is_padding": i >= rows} for i in range(rows + padding)]
        keys = [f"{i}_0_0" for i in range(rows + padding)]
        return SlcaTrainerSync(config), SimpleNamespace(keys=keys, tags=tags, partition_id="train")

    return make


def test_the_trainer_counts_before_verl_pads_the_batch(made):
    extra = [{"reward_extra_info": info} for info in infos("judge_timeout", "judge_timeout", "")]
    stopping, batch = made(extra, {})
    with pytest.raises(InfrastructureFault, match="2 of the 3"):
        stopping._balance_batch(batch, {})
    going_on, batch = made(extra, {"max_lost_share": 0.7})
    assert going_on._balance_batch(batch, {}) == "balanced"


def test_what_was_asked_for_and_never_came_back_is_lost(made):
    extra = [{"reward": 1.0, "reward_extra_info": info} for info in infos("judge_timeout", "", "")]
    stopping, batch = made(extra, {}, asked=64)
    with pytest.raises(InfrastructureFault, match=r"62 of the 64 .*never_returned: 61, judge_timeout: 1"):
        stopping._balance_batch(batch, {})
    metrics: dict[str, float] = {}
    going_on, batch = made(extra, {"max_lost_share": 1.0}, asked=64, padding=61)
    going_on._compute_metrics(batch, metrics)
    assert (metrics["faults/lost"], metrics["faults/never_returned"]) == (62.0, 61.0)


def test_verl_replaces_failed_prompts_and_they_are_lost_all_the_same(made):
    stopping, batch = made([{"reward_extra_info": info} for info in infos("", "")], {}, asked=2)
    with pytest.raises(InfrastructureFault, match=r"3 of the 5 .*never_returned: 3"):
        stopping._balance_batch(batch, {"training/rollout_failure/evicted_samples": 3})


def test_a_step_of_which_nothing_came_back_stops_whatever_may_be_lost(made):
    stopping, batch = made([], {"max_lost_share": 1.0}, asked=4)
    with pytest.raises(InfrastructureFault, match="4 of the 4"):
        stopping._balance_batch(batch, {})


def test_a_rollout_in_several_parts_came_back_once():
    assert len(never_returned(["a_0_0", "a_0_1", "b_0_0"], asked=3)) == 1
    assert never_returned(["a_0_0", "a_1_0"], asked=1) == []


def test_validation_counts_what_never_came_back(made):
    validating, _ = made([], {})
    found = validating._val_metrics_update(
        [],
        ["a", "a", "b"],
        {"fault": ["", "", "judge_timeout"], "reward": [1, 1, 0]},
        [],
        {("s", "a"): 2, ("s", "b"): 2},
    )
    assert found == {"val-faults/lost": 2.0, "val-faults/never_returned": 1.0, "val-faults/judge_timeout": 1.0}
    with pytest.raises(InfrastructureFault, match="3 of the 4 rollouts of this validation"):
        validating._val_metrics_update([], ["a"], {"fault": [""], "reward": [1]}, [], {("s", "a"): 2, ("s", "b"): 2})


def test_the_score_is_one_number_under_both_names(made):
    extra = [{"reward_extra_info": {"score": score, "fault": ""}} for score in (-0.5, 1.5)]
    counting, batch = made(extra, {})
    metrics = {"critic/score/mean": -0.44}
    counting._compute_metrics(batch, metrics)
    assert metrics["critic/score/mean"] == metrics["rollout/score/mean"] == 0.5
    assert (metrics["critic/score/min"], metrics["critic/score/max"]) == (-0.5, 1.5)


def test_a_share_that_makes_no_sense_is_refused_at_the_start(made):
    with pytest.raises(ConfigError, match=r"algorithm\.slca.*max_lost_share"):
        made([], {"max_lost_share": 0.0})


def test_the_simulators_figures_are_summed_over_the_step(made):
    one = ToolFigures(calls=2, valid=1, invalid=1, tokens=30, kinds=Counter({"source/llm": 1}), latency=Counter({8: 2}))
    counting, batch = made([{"sgls_figures": to_dict(one)}] * 3 + [{}], {})
    metrics: dict[str, float] = {}
    counting._compute_metrics(batch, metrics)
    assert metrics["sgls/calls"] == 6.0
    assert metrics["sgls/valid_share"] == 0.5
    assert metrics["sgls/tokens"] == 90.0
    assert metrics["sgls/source/llm"] == 3.0
    assert metrics["sgls/latency_p50"] == pytest.approx(1e-3)


def test_verls_own_numbers_leave_lost_rollouts_out(made):
    kept, lost = {"reward_extra_info": {"fault": ""}}, {"reward_extra_info": {"fault": "judge_timeout"}}
    counting, batch = made([{"reward": 3.0, **kept}, {"reward": -9.0, **lost}, {"reward": 5.0, **kept}], {})
    metrics = {"critic/score/mean": 0.0, "critic/rewards/min": -8.0}
    counting._compute_metrics(batch, metrics)
    assert {name: metrics[f"critic/score/{name}"] for name in ("mean", "max", "min")} == {"mean": 5, "max": 6, "min": 4}
    assert metrics["critic/rewards/min"] == 4.0
    assert metrics["faults/lost"] == 1.0


def test_dumped_rollouts_carry_their_numbers_and_lost_ones_no_score(made):
    extra = [{"reward": 1.0, "reward_extra_info": info} for info in infos("", "judge_timeout")]
    dumping, batch = made(extra, {}, padding=1)
    dumping._compute_metrics(batch, {})
    keys = ["0_0_0", "1_0_0", "2_0_0"]
    dumping._dump_generations(scores=[2.0, 0.0, 0.0], reward_extra_infos_dict={"uid": keys}, gts=[1, 2, 3])
    columns = {"uid": keys, "process": [1.0, 1.0, None], "fault": ["", "judge_timeout", None]}
    assert dumping.dumped == {"scores": [2.0, None, 0.0], "reward_extra_infos_dict": columns, "gts": [1, 2, 3]}


@pytest.mark.parametrize(("faults", "kept"), [({"fault": ["", "judge_timeout"]}, [2.0, None]), ({}, [2.0, 0.0])])
def test_validation_dumps_keep_verls_columns_and_lost_rollouts_have_no_score(made, faults, kept):
    dumping, _ = made([], {})
    columns = {"uid": ["a", "b"], **faults}
    dumping._dump_generations(scores=[2.0, 0.0], reward_extra_infos_dict=columns)
    assert dumping.dumped == {"scores": kept, "reward_extra_infos_dict": columns}


FENCED = {"turns": [{"text": '```json\n{"name": "ping"}\n```'}]}
NO_CALL = {"rollout/gold_calls/mean": 1.0, "rollout/calls/mean": 0.0, "critic/advantages/max": 0.5}
NO_ADVANTAGE = {"rollout/calls/mean": 2.0, "critic/advantages/max": 0.0, "critic/advantages/min": 0.0}
LEARNING = {"rollout/gold_calls/mean": 1.0, "rollout/calls/mean": 0.25, "critic/advantages/max": 0.5}


@pytest.mark.parametrize(("metrics", "why"), [(NO_CALL, "no rollout holds a call"), (NO_ADVANTAGE, "advantage is 0")])
def test_a_step_that_teaches_nothing_is_warned_of_with_a_sample_and_stops_when_it_lasts(metrics, why, caplog):
    silence = Silence(3)
    silence.look(metrics, [None, {"turns": []}, FENCED])
    silence.look(metrics, [FENCED])
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert why in said[0]
    assert "```json" in said[0]
    with pytest.raises(ConfigError, match=r"(?s)3 in a row.*max_silent_steps=0"):
        silence.look(metrics, [FENCED])


def test_a_step_that_teaches_something_ends_the_silence():
    silence = Silence(2)
    for metrics in (NO_CALL, LEARNING, NO_CALL, {**NO_CALL, "rollout/gold_calls/mean": 0.0}, NO_CALL):
        silence.look(metrics, [])
    for _ in range(9):
        Silence(0).look(NO_CALL, [])


def test_the_trainer_watches_its_own_steps(made):
    info = {"gold_calls": 1, "calls": 0, "fault": ""}
    watching, batch = made([{"reward_extra_info": info, "trajectory": FENCED}] * 2, {"max_silent_steps": 1})
    with pytest.raises(ConfigError, match="```json"):
        watching._compute_metrics(batch, {})
