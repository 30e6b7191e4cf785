"""Whose doing an ending was: the table of endings, without a simulator."""

from typing import Any

import pytest

from harness.benchmarks.tau2.outcome import METRICS, outcome_of

CALL = {"id": "1", "name": "look_up", "arguments": {}}
RAW = {"finish_reason": "stop"}
MESSAGES = [
    {"role": "assistant", "content": "Hi! How can I help you today?", "raw_data": None, "usage": None},
    {"role": "user", "content": "Look it up.", "usage": {"prompt_tokens": 900, "completion_tokens": 90}},
    {
        "role": "assistant",
        "tool_calls": [CALL],
        "raw_data": RAW,
        "usage": {"prompt_tokens": 10, "completion_tokens": 3},
    },
    {"role": "tool", "id": "1", "requestor": "assistant", "error": True},
    {"role": "assistant", "content": "No.", "raw_data": RAW, "usage": {"prompt_tokens": 20, "completion_tokens": 1}},
]


def ended(reason: str, reward: float = 1.0, verdicts: int | None = None) -> dict[str, Any]:
    info = {"reward": reward, "nl_assertions": None if verdicts is None else [{}] * verdicts}
    simulation = {"termination_reason": reason, "reward_info": info, "messages": MESSAGES}
    return {"simulation": simulation, "failed": None, "messages": [], "requests": 2}


def failed(who: str, kind: str = "server", text: str = "broken", error: str = "", status: int | None = None) -> dict:
    facts = {"who": who, "kind": kind, "text": text, "error": error, "status": status}
    return {"simulation": None, "failed": facts, "messages": MESSAGES, "requests": 2}


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("user_stop", "ok"),
        ("agent_stop", "ok"),
        ("max_steps", "ok"),
        ("judge_stop", "ok"),
        ("too_many_errors", "model_error"),
        ("agent_error", "model_error"),
        ("context_window_exceeded", "model_error"),
        ("user_error", "infrastructure_error"),
        ("infrastructure_error", "infrastructure_error"),
        ("unexpected_error", "infrastructure_error"),
        ("timeout", "infrastructure_error"),
        ("an ending of a later version", "infrastructure_error"),
    ],
)
def test_each_ending_is_somebodys(ending: str, status: str):
    outcome = outcome_of(ended(ending, reward=0.0), 0)
    assert outcome.status == status
    assert outcome.scores.get("reward") == (None if status == "infrastructure_error" else 0.0)
    assert bool(outcome.fault) == (status == "infrastructure_error")


@pytest.mark.parametrize(
    "answer",
    [
        failed("agent", "empty", "neither text nor a tool call"),
        failed("agent", "arguments", "tool arguments are not JSON: ''", "JSONDecodeError"),
        failed("agent", error="ContextWindowExceededError", status=400),
        failed("agent", text="This model's maximum context length is 4096 tokens", error="BadRequestError", status=400),
        failed("assertion", "unexpected", "Task task_2 not found", "ValueError"),
    ],
)
def test_what_the_model_broke_scores_0_and_keeps_what_was_said(answer: dict):
    outcome = outcome_of(answer, 0)
    assert outcome.status == "model_error"
    assert outcome.scores == {"reward": 0.0, "tool_calls": 1, "tool_errors": 1, "turns": 2}
    assert outcome.trajectory["messages"] == MESSAGES


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (failed("agent", error="RateLimitError", status=429), "policy_server_rate_limit"),
        (failed("agent", error="APIConnectionError", status=500), "policy_server_unreachable"),
        (failed("agent", error="Timeout", status=408), "policy_server_timeout"),
        (failed("agent", error="ServiceUnavailableError", status=503), "policy_server_error"),
        (failed("agent", error="AuthenticationError", status=401), "policy_server_refused"),
        (failed("agent", "unexpected", error="IndexError"), "policy_server_malformed"),
        # A full context is the model's doing only where it is the model's own.
        (failed("user", error="ContextWindowExceededError", status=400), "user_simulator"),
        (failed("user", "empty"), "user_simulator"),
        (failed("user", "arguments"), "user_simulator"),
        (failed("judge", "unexpected", error="JSONDecodeError"), "judge"),
        (failed("environment", "unexpected", error="KeyError"), "tau2_environment"),
        (failed("evaluator", "unexpected", error="ValueError"), "tau2_evaluator"),
    ],
)
def test_what_others_broke_is_no_score(answer: dict, fault: str):
    outcome = outcome_of(answer, 0)
    assert (outcome.status, outcome.fault, outcome.scores) == ("infrastructure_error", fault, {})


@pytest.mark.parametrize("verdicts", [None, 0, 1, 3])
def test_a_judge_that_leaves_out_verdicts_or_adds_some_has_failed(verdicts: int | None):
    outcome = outcome_of(ended("user_stop", verdicts=verdicts), assertions=2)
    assert (outcome.status, outcome.fault) == ("infrastructure_error", "judge_malformed")
    assert "simulation" in outcome.trajectory


def test_a_verdict_on_each_assertion_is_a_score():
    assert outcome_of(ended("user_stop", verdicts=2), assertions=2).scores["reward"] == 1.0


def test_a_simulation_that_ended_early_needs_no_verdicts():
    assert outcome_of(ended("max_steps", reward=0.0), assertions=2).status == "ok"


def test_only_the_agents_own_messages_count():
    outcome = outcome_of(ended("user_stop"), 0)
    assert outcome.scores == {"reward": 1.0, "tool_calls": 1, "tool_errors": 1, "turns": 2}
    assert list(outcome.scores) == list(METRICS)
    assert (outcome.usage.requests, outcome.usage.prompt_tokens, outcome.usage.completion_tokens) == (2, 30, 4)
