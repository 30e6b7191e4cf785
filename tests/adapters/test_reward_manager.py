"""The `hierr` reward manager under baselines with an LLM judge, and what it says at the start."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl")

from omegaconf import OmegaConf

from verl_slca.adapters.batch_row import row_of
from verl_slca.adapters.reward_manager import HierrRewardManager
from verl_slca.errors import ConfigError
from verl_slca.trajectory import ToolCall, ToolResult, Trajectory, Turn

sys.path.insert(0, str(Path(__file__).parents[1]))
from misbehaving_server import MisbehavingServer, refuse

pytestmark = pytest.mark.verl

PING = {"name": "ping", "parameters": {"type": "object", "properties": {"host": {"type": "string"}}}}
ROW_FIELDS = {
    "raw_prompt": [{"role": "user", "content": "Is h1 up?"}],
    "data_source": "demo",
    "tools": [PING],
    "reward_model": {
        "ground_truth": {
            "question_content": "Is h1 up?",
            "allowed_tools": ["ping"],
            "gold_tool_calls": [[{"name": "ping", "arguments": {"host": "h1"}}]],
        }
    },
}
ROW = row_of(ROW_FIELDS)
CALL = '<tool_call>\n{"name": "ping", "arguments": {"host": "h1"}}\n</tool_call>'
CALLED = Turn(CALL, (ToolCall("ping", {"host": "h1"}),), (ToolResult("ping", "up"),))
ROLLOUT = Trajectory((CALLED, Turn("h1 is up.")), "answer")


def manager(url: str, estimator: str, policy: str = "tiny", **llm: Any) -> HierrRewardManager:
    config = OmegaConf.create(
        {
            "algorithm": {"adv_estimator": estimator},
            "actor_rollout_ref": {"model": {"path": policy}, "rollout": {"custom": None}},
            "reward": {"hierr": {"judge": "llm", "llm": {"base_url": url, "model": "judge", "attempts": 1, **llm}}},
        }
    )
    return HierrRewardManager(config, SimpleNamespace())


def scored(manager: HierrRewardManager, trajectory: Trajectory = ROLLOUT) -> dict[str, Any]:
    return asyncio.run(manager.result(trajectory, ROW, {}))["reward_extra_info"]


def verdicts(body: dict[str, Any]) -> str:
    asked = body["messages"][0]["content"]
    if "Verdict:" in asked:
        return "Verdict: Unsolved"
    return f"Complete: {int(body['seed'] > 0)}" if "Complete:" in asked else "Rating: good"


def test_toolpo_asks_the_model_whether_the_task_was_solved():
    with MisbehavingServer(verdicts) as server:
        info = scored(manager(server.url, "slca_toolpo"))
    assert (info["tool_reward"], info["summary_reward"], info["summary"]) == (1.0, 0.0, 0.75)


def test_rltr_takes_the_votes_of_the_model():
    with MisbehavingServer(verdicts) as server:
        info = scored(manager(server.url, "slca_rltr"))
    assert info["tool_reward"] == info["summary_reward"] == pytest.approx(2 / 3)


def test_a_rollout_without_an_answer_is_unsolved_without_asking():
    with MisbehavingServer(verdicts) as server:
        info = scored(manager(server.url, "slca_toolpo"), Trajectory((CALLED,), "turn_limit"))
        assert (info["summary_reward"], server.requests) == (0.0, [])


def test_a_baseline_judge_that_fails_marks_the_rollout_and_scores_nothing():
    def fails(body: dict[str, Any]) -> Any:
        return refuse(401) if "Verdict:" in body["messages"][0]["content"] else "Rating: good"

    with MisbehavingServer(fails) as server:
        judged = manager(server.url, "slca_toolpo")
        result = asyncio.run(judged.result(ROLLOUT, ROW, {}))
    info = result["reward_extra_info"]
    assert (result["reward_score"], info["fault"]) == (0.0, "judge_refused")
    assert info["tool_reward"] is info["summary_reward"] is info["process"] is None


def test_a_judge_of_the_policys_family_is_warned_of_at_the_start(caplog):
    with caplog.at_level(logging.WARNING):
        manager("http://127.0.0.1:9/v1", "slca", policy="Qwen/Qwen2.5-3B-Instruct", model="Qwen3-235B")
    assert [record.message[:24] for record in caplog.records] == ["models of one family: po"]


def test_a_cluster_cache_without_ray_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"cache\.scope=machine"):
        manager("http://127.0.0.1:9/v1", "slca", cache={"path": str(tmp_path / "c"), "scope": "cluster"})


@pytest.mark.parametrize("method", ["_trajectory", "result", "score"])
def test_an_exception_anywhere_marks_the_rollout(monkeypatch, method):
    def broken(*args: Any, **kwargs: Any) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(HierrRewardManager, method, broken)
    fields = {**ROW_FIELDS, "tool_extra_fields": {"trajectory": ROLLOUT.to_dict()}}
    result = asyncio.run(
        manager("http://127.0.0.1:9/v1", "slca").run_single([SimpleNamespace(non_tensor_batch=fields)])
    )
    info = result["reward_extra_info"]
    assert (result["reward_score"], info["fault"]) == (0.0, "reward_KeyError")
    assert info["tool_reward"] is info["summary_reward"] is info["score"] is None


def test_a_lost_rollout_keeps_its_own_fault_whatever_its_row():
    fields = {"tool_extra_fields": {"trajectory": Trajectory((), "fault", "rollout_DataError").to_dict()}}
    result = asyncio.run(
        manager("http://127.0.0.1:9/v1", "slca").run_single([SimpleNamespace(non_tensor_batch=fields)])
    )
    assert result["reward_extra_info"]["fault"] == "rollout_DataError"
