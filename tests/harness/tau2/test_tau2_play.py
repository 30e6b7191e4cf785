"""Single simulations with the real package, the model played by a script over HTTP."""

import dataclasses
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tau2_bench import KEY, Bench

from harness.benchmarks.tau2 import gold
from harness.benchmarks.tau2.gold import USER, call, text
from harness.benchmarks.tau2.task import Tau2
from harness.scripted_server import Reply, completion_reply, error_reply
from verl_slca.errors import InfrastructureFault

CREATE = "mock/create_task_1/0"


def agent(reply: Callable[[Mapping[str, Any]], Any]) -> Callable[[str, Mapping[str, Any]], Any]:
    """The agent says what `reply` makes of the request, the user what it does with the gold."""
    return lambda sample, body: _user(body) if body["model"] == USER else reply(body)


def _user(body: Mapping[str, Any]) -> dict[str, Any]:
    return text("###STOP###" if any(m["role"] == "assistant" for m in body["messages"]) else "Hello.")


def gold_of(task: Tau2) -> Any:
    return gold.scripts(task)["gold"]


@pytest.mark.parametrize(
    "id",
    [
        CREATE,
        "mock/create_task_1_with_env_assertions/0",
        "mock/update_task_with_message_history/0",
        "airline/0/0",
        "airline/7/0",
        "retail/0/0",
        "retail/5/0",
        "telecom/[mobile_data_issue]airplane_mode_on|user_abroad_roaming_enabled_off[PERSONA:Hard]/0",
        "telecom/[service_issue]break_apn_settings|unseat_sim_card[PERSONA:Easy]/0",
    ],
)
def test_a_tasks_own_actions_are_right(bench: Bench, task: Tau2, id: str):
    domain = id.split("/")[0]
    if id not in {sample.id for sample in task.samples()}:
        id = next(s.id for s in task.samples() if s.kind == domain)
    outcome = bench.play(task, id, gold_of(task))
    assert (outcome.status, outcome.scores.get("reward")) == ("ok", 1.0), outcome.reason
    assert outcome.scores["tool_errors"] == 0


def test_doing_nothing_is_wrong_where_something_was_to_be_done(bench: Bench, task: Tau2):
    outcome = bench.play(task, CREATE, gold.scripts(task)["noop"])
    assert outcome.status == "ok"
    assert outcome.scores == {"reward": 0.0, "tool_calls": 0, "tool_errors": 0, "turns": 1}


def test_an_assertion_on_what_is_not_there_is_the_models(bench: Bench, task: Tau2):
    outcome = bench.play(task, "mock/create_task_1_with_env_assertions/0", gold.scripts(task)["noop"])
    assert (outcome.status, outcome.scores["reward"]) == ("model_error", 0.0)
    assert "task_2 not found" in outcome.reason


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (call("1", "create_task", '{"user_id": "user_1", '), "tool arguments are not JSON"),
        (call("1", "create_task", ""), "tool arguments are not JSON: ''"),
        (call("1", "create_task", '["user_1"]'), "a tool call that is none"),
        (call("1", "create_task", "null"), "a tool call that is none"),
        (text(""), "neither text nor a tool call"),
        (text("  \n"), "neither text nor a tool call"),
    ],
)
def test_what_cannot_be_used_is_the_models_and_not_asked_again(bench: Bench, task: Tau2, reply: Any, said: str):
    outcome = bench.play(task, CREATE, agent(lambda body: reply), retries=3)
    assert (outcome.status, outcome.scores["reward"]) == ("model_error", 0.0)
    assert said in outcome.reason
    assert [message["role"] for message in outcome.trajectory["messages"]] == ["assistant", "user"]
    assert outcome.usage.requests == 1
    assert bench.rescore(task, CREATE, outcome).status == "model_error"


def test_a_full_context_is_the_models_and_asked_once_more_without_a_limit(bench: Bench, task: Tau2):
    full = error_reply(400, "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens")
    outcome = bench.play(task, CREATE, agent(lambda body: full), retries=3)
    assert (outcome.status, outcome.scores["reward"]) == ("model_error", 0.0)
    assert "does not fit" in outcome.reason
    limits = [body.get("max_tokens") for _, body in bench.server.requests if body["model"] != USER]
    assert limits == [8192, None]


def test_a_limit_that_does_not_fit_the_context_is_left_out(bench: Bench, task: Tau2):
    full = error_reply(400, "max_tokens is too large: this model's maximum context length is 4096 tokens")
    script = gold_of(task)
    outcome = bench.play(
        task, CREATE, lambda id, body: full if body.get("max_tokens") else script(id, body), max_tokens=4000
    )
    assert outcome.scores["reward"] == 1.0


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (error_reply(429, "slow down"), "policy_server_rate_limit"),
        (error_reply(500, "broken"), "policy_server_error"),
        (error_reply(401, f"wrong key {KEY}"), "policy_server_refused"),
        (Reply(b'{"id": ', torn=True), "policy_server_error"),
    ],
)
def test_what_the_server_breaks_is_never_a_score(bench: Bench, task: Tau2, reply: Reply, fault: str):
    outcome = bench.play(task, CREATE, agent(lambda body: reply))
    assert (outcome.status, outcome.fault, outcome.scores) == ("infrastructure_error", fault, {})
    assert KEY not in str(outcome)


def test_a_request_that_failed_is_sent_again(bench: Bench, task: Tau2):
    right, failures = gold_of(task), iter([error_reply(429, "slow down"), error_reply(503, "overloaded")])

    def script(id: str, body: Mapping[str, Any]) -> Any:
        return (None if body["model"] == USER else next(failures, None)) or right(id, body)

    outcome = bench.play(task, CREATE, script, retries=2)
    assert outcome.scores["reward"] == 1.0
    assert outcome.usage.requests == 4


@pytest.mark.parametrize(
    "reply",
    [error_reply(429, "slow down"), text(""), call("1", "no_json", "{"), completion_reply(text(""), "length")],
)
def test_what_the_user_breaks_is_never_the_models(bench: Bench, task: Tau2, reply: Any):
    outcome = bench.play(task, CREATE, lambda id, body: reply if body["model"] == USER else text("Hello."))
    assert (outcome.status, outcome.fault, outcome.scores) == ("infrastructure_error", "user_simulator", {})


def test_requests_are_the_official_ones_and_say_which_sample_they_are_for(bench: Bench, task: Tau2):
    id = "mock/create_task_1/1"
    twice = Tau2(task.installation, dataclasses.replace(task.config, trials=2), seed=300)
    outcome = bench.play(twice, id, gold_of(twice), temperature=0.7)
    assert outcome.scores["reward"] == 1.0
    assert {sample for sample, _ in bench.server.requests} == {id}
    body = next(body for _, body in bench.server.requests if body["model"] != USER)
    # The official command's seeds of two trials under its default seed.
    assert twice.seeds == [626729, 373753]
    assert (body["seed"], body["temperature"], body["tool_choice"]) == (373753, 0.7, "auto")
    assert {tool["function"]["name"] for tool in body["tools"]} >= {"create_task", "update_task_status"}
    assert "<policy>" in body["messages"][0]["content"]
    user = next(body for _, body in bench.server.requests if body["model"] == USER)
    assert (user["temperature"], user["seed"]) == (0.0, 373753)
    simulation = outcome.trajectory["simulation"]
    assert (simulation["trial"], simulation["seed"]) == (1, 373753)


def test_a_saved_simulation_scores_the_same_again(bench: Bench, task: Tau2):
    id = "airline/7/0"
    outcome = bench.play(task, id, gold_of(task))
    assert KEY not in json.dumps(outcome.trajectory)
    again = bench.rescore(task, id, outcome)
    assert (again.status, again.scores, again.usage) == (outcome.status, outcome.scores, outcome.usage)
    # The reward comes from the messages, not from what was saved of it.
    changed = json.loads(json.dumps(outcome.trajectory))
    changed["simulation"]["messages"] = changed["simulation"]["messages"][:2]
    changed["simulation"]["termination_reason"] = "max_steps"
    outcome = type(outcome)("ok", scores={"reward": 1.0}, trajectory=changed)
    assert bench.rescore(task, id, outcome).scores["reward"] == 0.0


def test_steps_that_are_used_up_are_no_fault(bench: Bench, task: Tau2, load: Any):
    short = load("mock", max_steps=4)
    script = gold_of(task)
    endless = lambda id, body: text("Go on.") if body["model"] == USER else script("", {"tools": True})  # noqa: E731
    outcome = bench.play(short, CREATE, endless)
    assert (outcome.status, outcome.reason, outcome.scores["reward"]) == ("ok", "used up its steps", 0.0)
    assert outcome.scores["tool_errors"] > 0
    outcome = bench.play(load("mock", max_errors=2), CREATE, endless)
    assert (outcome.status, outcome.reason) == ("model_error", "too many tool calls failed")


def test_a_scripted_user_needs_no_model_and_says_so(bench: Bench, load: Any):
    alone = load("mock", user="scripted")
    entry = alone.entry(CREATE)["actions"][0]

    def script(sample: str, body: Mapping[str, Any]) -> Any:
        assert body["model"] != USER
        made = any(message.get("tool_calls") for message in body["messages"])
        return text("Done.") if made else call("1", entry["name"], json.dumps(entry["arguments"]))

    outcome = bench.play(alone, CREATE, script)
    assert outcome.scores["reward"] == 1.0
    users = [m["content"] for m in outcome.trajectory["simulation"]["messages"] if m["role"] == "user"]
    assert "Important Meeting" in users[0]
    assert users[1:] == ["Yes, please go ahead.", "###STOP###"]
    assert alone.identity()["label"] == "scripted user: not comparable with published numbers"
    assert "Scripted user: not comparable with published numbers." in alone.aggregates([])["notes"]


def test_a_simulation_that_does_not_end_is_ended(bench: Bench, load: Any):
    hurried = load("mock", sample_seconds=1.5)

    released = threading.Event()

    def never(body: Mapping[str, Any]) -> Any:
        released.wait(60)
        return text("Hello.")

    with pytest.raises(InfrastructureFault, match=r"tau2_timeout: no end after 1\.5 s"):
        bench.play(hurried, CREATE, agent(never))
    released.set()


def test_what_a_run_is_made_with_is_recorded(task: Tau2):
    identity = task.identity()
    assert set(identity["distribution"]) >= {"name", "version", "commit", "code_sha256"}
    assert identity["split"] == "base"
    assert identity["user_model"] == USER
    assert {name: domain["tasks"] for name, domain in identity["domains"].items()}["airline"] == 50
    assert all(len(domain["tasks_sha256"]) == 16 for domain in identity["domains"].values())
    json.dumps(identity)
