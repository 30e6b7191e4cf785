"""Entries played over HTTP: the traps of the benchmark, and what each must come to."""

import json
from typing import Any

import pytest
from bfcl_fixtures import Ask, Load, PlayOne
from scripted_server import ScriptedServer, completion, error

from harness.benchmarks.bfcl import gold
from harness.benchmarks.bfcl.episode import MAX_STEPS
from harness.benchmarks.bfcl.gold import message
from verl_slca.errors import ConfigError, PolicyServerFault

TRIANGLE = {"base": 10, "height": 5}
AREA = "calculate_triangle_area"
DOTTED = "simple_python_1"


def test_dots_are_underscores_on_both_sides(load: Load, play: PlayOne, server: ScriptedServer) -> None:
    task = load("simple_python")
    name = task.data.entries("simple_python")[DOTTED]["function"][0]["name"]
    assert "." in name
    right = gold.scripts(task)["gold"](DOTTED, {})
    assert play(task, lambda body: right, DOTTED).scores["accuracy"] == 1.0
    assert server.bodies[0]["tools"][0]["function"]["name"] == name.replace(".", "_")
    right["tool_calls"][0]["function"]["name"] = name
    assert play(task, lambda body: right, DOTTED).scores["accuracy"] == 0.0


def test_prompt_mode_keeps_the_dots_and_sends_the_official_prompt(
    load: Load, play: PlayOne, server: ScriptedServer
) -> None:
    task = load("simple_python", mode="prompt")
    ((name, arguments),) = gold.answer_calls(task, DOTTED)
    text = f"[{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})]"
    outcome = play(task, lambda body: text, DOTTED)
    assert outcome.scores["accuracy"] == 1.0
    assert outcome.trajectory["result"] == text
    assert "You are an expert in composing functions." in server.bodies[0]["messages"][0]["content"]
    assert "tools" not in server.bodies[0]


def test_requests_have_json_schema_types_and_carry_the_sample_id(
    load: Load, play: PlayOne, server: ScriptedServer
) -> None:
    play(load("simple_java"), lambda body: "no", "simple_java_2")
    function = server.bodies[0]["tools"][0]["function"]
    assert function["parameters"]["type"] == "object"
    assert {each["type"] for each in function["parameters"]["properties"].values()} == {"string"}
    assert function["description"].endswith("in Java 8 SDK syntax.")


@pytest.mark.parametrize(
    ("reply", "accuracy", "official", "unparsable"),
    [
        ("None of these functions computes an area.", 1.0, 1.0, 0.0),
        (message([("determine_body_mass_index", {"weight": 1.0, "height": 1.0})]), 0.0, 0.0, 0.0),
        ("", 0.0, 1.0, 1.0),
        ('<tool_call>{"name": "determine_body_mass_index", "arguments"</tool_call>', 0.0, 1.0, 1.0),
        ("determine_body_mass_index(weight=70", 0.0, 1.0, 1.0),
    ],
)
def test_irrelevance_is_passed_by_a_real_abstention_only(
    load: Load, play: PlayOne, reply: Any, accuracy: float, official: float, unparsable: float
) -> None:
    outcome = play(load("irrelevance"), lambda body: reply, "irrelevance_0")
    assert outcome.status == "ok"
    assert outcome.scores == {"accuracy": accuracy, "official": official, "unparsable": unparsable}


def test_a_server_that_fails_gives_no_score(load: Load, play: PlayOne) -> None:
    with pytest.raises(PolicyServerFault):
        play(load("irrelevance"), lambda body: error(500), "irrelevance_0")


def test_a_prompt_beyond_the_context_fails_its_own_sample_only(load: Load, play: PlayOne) -> None:
    def script(body: dict[str, Any]) -> Any:
        if "triangle" in body["messages"][-1]["content"]:
            return error(400, "This model's maximum context length is 10 tokens", "context_length_exceeded")
        return "None."

    task = load("irrelevance")
    outcome = play(task, script, "irrelevance_0")
    assert (outcome.status, outcome.scores["accuracy"], outcome.usage.requests) == ("model_error", 0.0, 2)
    assert play(task, script, "irrelevance_0", "irrelevance_1").status == "ok"


def test_no_calls_beside_a_text_is_the_text(load: Load, play: PlayOne) -> None:
    hermes = f"<tool_call>{json.dumps({'name': 'calculate_triangle_area', 'arguments': TRIANGLE})}</tool_call>"
    reply = {"role": "assistant", "content": hermes, "tool_calls": []}
    assert play(load("simple_python"), lambda body: reply, "simple_python_0").scores["accuracy"] == 1.0


def test_a_reply_that_was_cut_off_is_truncated(load: Load, play: PlayOne) -> None:
    outcome = play(load("irrelevance"), lambda body: completion("Let me think", "length", prompt=0), "irrelevance_0")
    assert outcome.status == "truncated"
    assert outcome.scores == {"accuracy": 0.0, "official": 1.0, "unparsable": 1.0}


def test_a_server_that_drops_the_tools_ends_the_run_before_it_seems_to_abstain(load: Load, play: PlayOne) -> None:
    deaf = lambda body: completion("I cannot help.", prompt=30)  # noqa: E731
    with pytest.raises(ConfigError, match=r"never sees the tools.*bfcl\.mode: prompt"):
        play(load("irrelevance"), deaf, "irrelevance_0")
    assert play(load("irrelevance", mode="prompt"), deaf, "irrelevance_0").status == "ok"


def test_a_run_in_which_nothing_can_be_read_stops_and_says_how_it_reads(load: Load, play: PlayOne) -> None:
    task = load("simple_python")
    ids = [sample.id for sample in task.samples()][:20]
    script = lambda body: "[calculate(area)]"  # noqa: E731
    play(task, script, *ids[:19])
    with pytest.raises(ConfigError, match=r"first 20 .*read from .*hermes[\s\S]*tool-call-parser"):
        play(task, script, *ids)
    first = iter([message([("x", {})])])
    play(task, lambda body: next(first, "[calculate(area)]"), *ids)
    assert play(load("simple_python", stop_unread=False), script, *ids).scores["unparsable"] == 1.0
    assert task.identity() == load("simple_python", stop_unread=False).identity()


def test_reasoning_stays_in_the_history(load: Load, play: PlayOne, server: ScriptedServer) -> None:
    def script(body: dict[str, Any]) -> Any:
        if body["messages"][-1]["role"] == "user":
            return {**message([("pwd", {})]), "reasoning_content": "where am I"}
        return "Done."

    play(load("multi_turn_base"), script, "multi_turn_base_0")
    history = server.bodies[1]["messages"]
    assert [message["role"] for message in history] == ["user", "assistant", "tool"]
    assert history[1]["reasoning_content"] == "where am I"
    assert history[2]["tool_call_id"] == "call_0"


@pytest.mark.parametrize("id", ["multi_turn_base_3", "multi_turn_miss_func_0", "multi_turn_miss_param_1"])
def test_multi_turn_gold_passes_and_wrong_fails(load: Load, play: PlayOne, id: str) -> None:
    task = load("multi_turn")
    for name, accuracy in (("gold", 1.0), ("wrong", 0.0)):
        script = gold.scripts(task)[name]
        outcome = play(task, lambda body, script=script: script(id, body), id)
        assert (outcome.status, outcome.scores["accuracy"]) == ("ok", accuracy)


def test_a_function_that_was_held_out_is_offered_from_its_turn_on(
    load: Load, play: PlayOne, server: ScriptedServer
) -> None:
    task = load("multi_turn_miss_func")
    script = gold.scripts(task)["gold"]
    play(task, lambda body: script("multi_turn_miss_func_0", body), "multi_turn_miss_func_0")
    offered = [{tool["function"]["name"] for tool in body["tools"]} for body in server.bodies]
    assert "sort" not in offered[0]
    assert "sort" in offered[-1]
    assert any("updated some more functions" in message["content"] for message in server.bodies[-1]["messages"])


def test_multi_turn_in_prompt_mode_answers_as_the_official_command_does(
    load: Load, play: PlayOne, server: ScriptedServer
) -> None:
    script = lambda body: "[pwd()]" if body["messages"][-1]["role"] == "user" and len(body["messages"]) < 3 else "ok"  # noqa: E731
    play(load("multi_turn_base", mode="prompt"), script, "multi_turn_base_0")
    assert server.bodies[1]["messages"][-1] == {
        "role": "user",
        "content": repr([{"role": "tool", "name": "pwd()", "content": '{"current_working_directory": "/workspace"}'}]),
    }


def test_an_episode_without_end_is_ended_and_fails(load: Load, play: PlayOne, server: ScriptedServer) -> None:
    outcome = play(load("multi_turn_base"), lambda body: message([("pwd", {})]), "multi_turn_base_0")
    assert len(server.bodies) == MAX_STEPS + 1
    assert outcome.scores["accuracy"] == 0.0
    assert outcome.trajectory["verdict"]["error_type"] == "multi_turn:force_terminated"


def test_a_call_that_does_not_end_is_the_models_own_error(load: Load, play: PlayOne) -> None:
    task = load("multi_turn_base", sample_seconds=0.5)
    outcome = play(task, lambda body: message([("str(9**9**9) or pwd", {})]), "multi_turn_base_0")
    assert (outcome.status, outcome.scores["accuracy"]) == ("model_error", 0.0)
    assert "took longer than 0.5 s" in outcome.reason


def test_a_saved_sample_scores_the_same_again(load: Load, play: PlayOne, ask: Ask) -> None:
    import asyncio

    from harness.records import Record

    task = load("irrelevance")
    outcome = play(task, lambda body: "", "irrelevance_0")
    record = Record(
        "irrelevance_0", "bfcl", "irrelevance", outcome.status, "", "", {}, outcome.trajectory, outcome.usage
    )

    async def again() -> Any:
        async with task.rescoring() as score:
            return await score(record)

    assert asyncio.run(again()) == outcome
