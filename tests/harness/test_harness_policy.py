from collections.abc import Callable
from typing import Any

import pytest
from scripted_server import ScriptedServer, completion, error, torn

from harness.policy import ChatPolicy, ContextOverflowError, Sampling
from harness.scripted_server import Reply
from verl_slca.endpoint import connect
from verl_slca.episode import Limits, run_episode
from verl_slca.errors import PolicyServerFault
from verl_slca.seeds import derived_seed
from verl_slca.trajectory import ToolCall, ToolResult, Trajectory

MESSAGES = [{"role": "user", "content": "hi"}]
PING = '<tool_call>\n{"name": "ping", "arguments": {"host": "h1"}}\n</tool_call>'


class Echo:
    async def respond(self, calls: Any) -> list[ToolResult]:
        return [ToolResult(call.name, f"{call.name} ok") for call in calls]


async def play(server: ScriptedServer, script: Callable[[dict[str, Any]], Any], **more: Any) -> Trajectory:
    return (await play_with(server, script, **more))[0]


async def play_with(
    server: ScriptedServer,
    script: Callable[[dict[str, Any]], Any],
    timeout: float = 10.0,
    tools: list[dict[str, Any]] | None = None,
    sampling: Sampling | None = None,
    limits: Limits | None = None,
) -> tuple[Trajectory, ChatPolicy]:
    server.script = script
    async with connect(server.url, timeout, retries=0) as client:
        policy = ChatPolicy(client, "scripted", MESSAGES, tools, sampling or Sampling())
        return await run_episode(policy, Echo(), limits or Limits()), policy


def turns(*replies: Any) -> Callable[[dict[str, Any]], Any]:
    """A script that gives these replies one after the other within each conversation."""
    return lambda body: replies[sum(message["role"] == "assistant" for message in body["messages"])]


async def test_text_calls_are_played_and_sent_back_as_they_were_written(server: ScriptedServer) -> None:
    trajectory, policy = await play_with(server, turns(PING, "It is up."))
    assert [turn.text for turn in trajectory.turns] == [PING, "It is up."]
    assert trajectory.stop == "answer"
    sent = server.bodies[1]["messages"]
    assert sent[1] == {"role": "assistant", "content": PING}
    assert (sent[2]["role"], sent[2]["name"], sent[2]["content"]) == ("tool", "ping", "ping ok")
    assert "tools" not in server.bodies[0]
    assert (policy.usage.requests, policy.usage.prompt_tokens, policy.usage.completion_tokens) == (2, 200, 20)


def structured(*calls: tuple[str, str], content: str | None = None) -> dict[str, Any]:
    parts = [
        {"id": f"id{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": content, "tool_calls": parts}


async def test_structured_calls_become_hermes_text_and_go_back_structured(server: ScriptedServer) -> None:
    reply = structured(("ping", '{"host": "h1"}'), ("pong", ""), content="Let me see.")
    trajectory = await play(server, turns(reply, "Done."), tools=[{"type": "function", "function": {"name": "ping"}}])
    assert trajectory.turns[0].text.startswith("Let me see.\n<tool_call>")
    assert trajectory.calls == (ToolCall("ping", {"host": "h1"}), ToolCall("pong", {}))
    sent = server.bodies[1]["messages"]
    assert [call["id"] for call in sent[1]["tool_calls"]] == ["id0", "id1"]
    assert [(m["tool_call_id"], m["content"]) for m in sent[2:]] == [("id0", "ping ok"), ("id1", "pong ok")]
    assert server.bodies[0]["tools"]


async def test_structured_calls_with_broken_arguments_are_the_models_malformed_calls(server: ScriptedServer) -> None:
    trajectory = await play(server, turns(structured(("ping", '{"host": ')), "Sorry."))
    assert trajectory.calls == ()
    assert trajectory.turns[0].results[0].is_error


async def test_every_structured_call_gets_an_answer_even_beyond_the_parallel_limit(server: ScriptedServer) -> None:
    reply = structured(*[("ping", "{}")] * 4)
    await play(server, turns(reply, "Done."), limits=Limits(max_parallel_calls=2))
    answers = server.bodies[1]["messages"][2:]
    assert [answer["tool_call_id"] for answer in answers] == ["id0", "id1", "id2", "id3"]
    assert "not executed" in answers[2]["content"]
    assert answers[2]["content"] == answers[3]["content"]


async def test_reasoning_is_kept_in_the_text_and_hides_no_answer(server: ScriptedServer) -> None:
    trajectory = await play(server, turns({"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}))
    assert trajectory.answer == "<think>\nHm.\n</think>\n\nYes."


async def test_an_empty_list_of_calls_falls_back_to_the_content(server: ScriptedServer) -> None:
    trajectory = await play(server, turns({"role": "assistant", "content": "Yes.", "tool_calls": []}))
    assert (trajectory.stop, trajectory.answer) == ("answer", "Yes.")


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (lambda: error(500), "policy_server_error"),
        (lambda: error(503), "policy_server_error"),
        (lambda: error(429), "policy_server_rate_limit"),
        (lambda: error(404), "policy_server_refused"),
        (lambda: error(400), "policy_server_refused"),
        (torn, "policy_server_unreachable"),
        (lambda: Reply(b"<html>"), "policy_server_malformed"),
        (lambda: Reply(b"<html>", content_type="text/html"), "policy_server_malformed"),
        (lambda: Reply(b'{"choices": []}'), "policy_server_malformed"),
        (
            lambda: completion("x", finish="abort"),
            "policy_server_malformed",
        ),
    ],
)
async def test_what_the_server_does_wrong_is_a_fault_and_never_an_answer(
    server: ScriptedServer, reply: Callable[[], Any], kind: str
) -> None:
    trajectory, policy = await play_with(server, lambda body: reply())
    assert (trajectory.stop, trajectory.fault) == ("fault", kind)
    assert policy.fault


async def test_a_slow_server_is_a_timeout(server: ScriptedServer) -> None:
    server.delay = 1.0
    trajectory = await play(server, turns("late"), timeout=0.1)
    assert trajectory.fault == "policy_server_timeout"


async def test_a_server_that_is_gone_is_a_fault(server: ScriptedServer) -> None:
    server.close()
    trajectory = await play(server, turns("never"))
    assert trajectory.fault == "policy_server_unreachable"


OVERFLOW = "This model's maximum context length is 64 tokens. However, you requested 100 tokens"


async def test_a_first_prompt_beyond_the_context_is_the_samples_own_end(server: ScriptedServer) -> None:
    with pytest.raises(ContextOverflowError, match="maximum context length"):
        await play(server, lambda body: error(400, OVERFLOW))


async def test_a_context_used_up_midway_ends_the_rollout_on_its_tool_turn(server: ScriptedServer) -> None:
    script = turns(PING, error(400, OVERFLOW))
    trajectory = await play(server, script)
    assert (len(trajectory.turns), trajectory.stop) == (1, "length")
    assert trajectory.turns[0].results


async def test_max_tokens_beyond_the_context_is_asked_again_without_it(server: ScriptedServer) -> None:
    trajectory = await play(server, lambda body: error(400, OVERFLOW) if "max_tokens" in body else "Fits.")
    assert trajectory.answer == "Fits."


async def test_a_reply_cut_at_its_limit_is_no_answer(server: ScriptedServer) -> None:
    trajectory = await play(server, lambda body: completion("cut of", finish="length"))
    assert (trajectory.stop, trajectory.answer) == ("length", "")


async def test_the_token_budget_covers_all_turns_and_tool_responses(server: ScriptedServer) -> None:
    first, second = completion(PING, prompt=100, used=10), completion(PING, prompt=130, used=10)
    script = turns(first, second, "never reached")
    trajectory = await play(server, script, sampling=Sampling(max_tokens=40))
    assert [body["max_tokens"] for body in server.bodies] == [40, 30]  # then 130 + 10 - 100 = 40 are used
    assert (len(trajectory.turns), trajectory.stop) == (2, "length")


async def test_seed_and_temperature_reach_the_server(server: ScriptedServer) -> None:
    await play(server, turns(PING, "Hi."), sampling=Sampling(temperature=0.7, seed=11))
    assert {body["temperature"] for body in server.bodies} == {0.7}
    assert [body["seed"] for body in server.bodies] == [derived_seed(11, 1), derived_seed(11, 3)]  # messages so far


def test_sampling_refuses_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="temperature"):
        Sampling(temperature=-1)
    with pytest.raises(ValueError, match="max_tokens"):
        Sampling(max_tokens=0)


async def test_a_key_comes_from_the_environment_only(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    async with connect(server.url, 1.0, 0) as client:
        assert client.api_key == "sk-test"


async def test_a_fault_keeps_what_was_said_before_it(server: ScriptedServer) -> None:
    trajectory = await play(server, turns(PING, error(500)))
    assert (len(trajectory.turns), trajectory.fault) == (1, "policy_server_error")
    assert PolicyServerFault("policy_server_error").kind == trajectory.fault
