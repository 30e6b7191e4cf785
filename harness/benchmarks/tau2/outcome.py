"""How a simulation ended, and whose doing it was: the model's own faults score 0, those of others have no score."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.benchmarks.task import Metric, Outcome
from harness.records import Usage

METRICS: dict[str, Metric] = {
    "reward": Metric("share", "official reward of 1: the database, and what else the task is graded by, is right"),
    "tool_calls": Metric("count", "tool calls of the agent"),
    "tool_errors": Metric("count", "of these answered with an error"),
    "turns": Metric("count", "messages of the agent, tool calls included"),
}

OVERFLOW = re.compile(
    r"context.{0,9}(length|size|window|limit)|max(imum)?.model.len|prompt.{0,20}too long", re.IGNORECASE
)

_SERVER_FAULTS = {
    "Timeout": "policy_server_timeout",
    "APITimeoutError": "policy_server_timeout",
    "APIConnectionError": "policy_server_unreachable",
    "RateLimitError": "policy_server_rate_limit",
}

_ENDINGS = {
    "user_stop": "",
    "agent_stop": "",
    "max_steps": "used up its steps",
    "judge_stop": "stopped for repeating itself",
}

_BROKEN = {
    "too_many_errors": "too many tool calls failed",
    "agent_error": "broke the protocol of the conversation",
    "context_window_exceeded": "the conversation does not fit the model's context",
}


def outcome_of(answer: Mapping[str, Any], assertions: int) -> Outcome:
    """What a simulator's answer means.

    Args:
        answer: see `worker`.
        assertions: how many of the task's a judge has to decide.
    """
    simulation, failed = answer["simulation"], answer["failed"]
    said = {"simulation": simulation} if simulation else {"messages": answer["messages"], "failed": failed}
    messages = simulation["messages"] if simulation else answer["messages"]
    shared: dict[str, Any] = {"trajectory": said, "usage": _usage(messages, answer["requests"])}
    if failed:
        return _failed(failed, messages, shared)
    reward, ending = simulation["reward_info"], simulation["termination_reason"]
    if ending in _BROKEN:
        return Outcome("model_error", _BROKEN[ending], scores=_scores(0.0, messages), **shared)
    if ending not in _ENDINGS:
        kind = "user_simulator" if ending == "user_error" else f"tau2_{ending}"
        return Outcome("infrastructure_error", f"the simulation ended with {ending}", kind, **shared)
    verdicts = len(reward.get("nl_assertions") or ())
    if ending in ("user_stop", "agent_stop") and assertions and verdicts != assertions:
        reason = f"the judge gave {verdicts} verdicts on {assertions} assertions"
        return Outcome("infrastructure_error", reason, "judge_malformed", **shared)
    # The official metrics count a reward as success within this of 1.
    scores = _scores(float(reward["reward"] > 1 - 1e-6), messages)
    return Outcome("ok", _ENDINGS[ending], scores=scores, **shared)


def _failed(failed: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], shared: dict[str, Any]) -> Outcome:
    who, kind, text = failed["who"], failed["kind"], failed["text"]
    if who == "agent":
        overflow = failed["error"] == "ContextWindowExceededError" or (
            failed["status"] == 400 and OVERFLOW.search(text)
        )
        if kind in ("empty", "arguments") or (kind == "server" and overflow):
            reason = f"the conversation does not fit the model's context: {text}" if overflow else text
            return Outcome("model_error", reason, scores=_scores(0.0, messages), **shared)
        fault = _server_fault(failed)
    elif who == "assertion":
        # The assertion holds after the task's own actions; what it asks for is not there after the model's.
        return Outcome("model_error", f"an assertion on what it left: {text}", scores=_scores(0.0, messages), **shared)
    else:
        fault = {"user": "user_simulator", "judge": "judge"}.get(who, f"tau2_{who}")
    return Outcome("infrastructure_error", f"{failed['error'] or kind}: {text}", fault, **shared)


def _server_fault(failed: Mapping[str, Any]) -> str:
    if failed["kind"] != "server":
        return "policy_server_malformed"
    status = failed["status"] or 500
    return _SERVER_FAULTS.get(failed["error"]) or ("policy_server_error" if status >= 500 else "policy_server_refused")


def _scores(reward: float, messages: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    # What came from a server has its raw data; the greeting and a task's own history have none.
    agent = [message for message in messages if message["role"] == "assistant" and message.get("raw_data")]
    calls = [call["id"] for message in agent for call in message.get("tool_calls") or ()]
    results = [m for m in messages if m["role"] == "tool" and m["requestor"] == "assistant" and m["id"] in calls]
    return {
        "reward": reward,
        "tool_calls": len(calls),
        "tool_errors": sum(bool(result["error"]) for result in results),
        "turns": len(agent),
    }


def _usage(messages: Sequence[Mapping[str, Any]], requests: int) -> Usage:
    spent = [m["usage"] for m in messages if m["role"] == "assistant" and m.get("usage")]
    prompt, completion = (sum(each.get(name) or 0 for each in spent) for name in ("prompt_tokens", "completion_tokens"))
    return Usage(requests, prompt, completion)
