import asyncio
import dataclasses
import logging

import pytest
from tau2_bench import Server

from harness.benchmarks.task import Model
from harness.benchmarks.tau2 import preflight
from harness.benchmarks.tau2.config import Tau2Config
from harness.benchmarks.tau2.gold import call, text
from harness.benchmarks.tau2.installation import Installation
from harness.policy import Sampling
from harness.scripted_server import NAME, Reply, error_reply
from verl_slca.endpoint import connect
from verl_slca.errors import ConfigError, PolicyServerFault

TASK = {"id": "t", "actions": [], "communicate": [], "assertions": []}
PLAIN = Installation("python", {}, "v1", "", {"retail": {"tasks": [TASK]}})  # type: ignore[arg-type]
JUDGED = dataclasses.replace(PLAIN, domains={"retail": {"tasks": [TASK, {**TASK, "assertions": ["polite"]}]}})
WITH_USER = {"user_model": "user", "user_url": "http://127.0.0.1:9/v1"}


def probe(server: Server, reply: dict | Reply) -> None:
    server.script = lambda sample, body: reply

    async def asked() -> None:
        async with connect(server.url, 10.0, 0) as client:
            await preflight.probe(Model(client, NAME, Sampling()))

    asyncio.run(asked())


def test_a_call_that_the_server_took_apart_passes(tau2_server: Server):
    probe(tau2_server, call("1", "find_order", '{"order_id": "W42"}'))


@pytest.mark.parametrize(
    "written",
    [
        '<tool_call>\n{"name": "find_order", "arguments": {"order_id": "W42"}}\n</tool_call>',
        '<|python_tag|>{"type": "function"}',
        '[TOOL_CALLS][{"name": "x"}]',
        "<function=find_order><parameter=order_id>W42</parameter></function>",
        '{"name": "find_order", "parameters": {"order_id": "W42"}}',
    ],
)
def test_a_call_that_arrives_as_text_names_the_missing_flags(tau2_server: Server, written: str):
    with pytest.raises(ConfigError, match="--enable-auto-tool-choice --tool-call-parser"):
        probe(tau2_server, text(written))


def test_a_server_that_takes_no_tools_names_the_missing_flags(tau2_server: Server):
    refused = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    with pytest.raises(ConfigError, match="takes no tools; start it with vLLM"):
        probe(tau2_server, error_reply(400, refused))


def test_thoughts_that_arrive_as_text_name_the_missing_flag(tau2_server: Server):
    thinking = call("1", "find_order", "{}") | {"content": "<think>An order.</think>"}
    with pytest.raises(ConfigError, match="--reasoning-parser"):
        probe(tau2_server, thinking)


def test_a_model_that_only_talks_is_warned_of_and_played(tau2_server: Server, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        probe(tau2_server, text("W42 has been shipped."))
    assert "made none" in caplog.text


def test_a_server_that_fails_is_no_settings_fault(tau2_server: Server):
    with pytest.raises(PolicyServerFault):
        probe(tau2_server, error_reply(503, "overloaded"))


def test_the_user_has_to_be_named():
    with pytest.raises(ConfigError, match=r"tau2\.user_model and tau2\.user_url.*user: scripted"):
        preflight.check_endpoints(Tau2Config(user_model="user"), PLAIN)
    preflight.check_endpoints(Tau2Config(user="scripted"), PLAIN)


def test_a_judge_has_to_be_named_where_tasks_have_assertions():
    with pytest.raises(ConfigError, match="needs a judge: 1 of these tasks"):
        preflight.check_endpoints(Tau2Config(**WITH_USER), JUDGED)
    preflight.check_endpoints(Tau2Config(**WITH_USER), PLAIN)
    judge = {"judge_model": "judge", "judge_url": "http://127.0.0.1:9/v1"}
    preflight.check_endpoints(Tau2Config(**WITH_USER, **judge), JUDGED)


def test_other_models_are_asked_before_the_run(tau2_server: Server):
    tau2_server.script = lambda sample, body: (
        error_reply(404, "no such model") if body["model"] == "missing" else call("1", "find_order", "{}")
    )

    async def check(config: Tau2Config) -> None:
        async with connect(tau2_server.url, 10.0, 0) as client:
            await preflight.check_servers(Model(client, NAME, Sampling()), config, JUDGED)

    url, there = tau2_server.url, {"user_model": "user", "user_url": tau2_server.url}
    asyncio.run(check(Tau2Config(**there, judge_model="judge", judge_url=url)))
    with pytest.raises(ConfigError, match=r"the user's model 'missing'.*SLCA_TAU2_USER_KEY"):
        asyncio.run(check(Tau2Config(user_model="missing", user_url=url)))
    with pytest.raises(ConfigError, match=r"the judge's model 'judge' at .* cannot be asked"):
        asyncio.run(check(Tau2Config(**there, judge_model="judge", judge_url="http://127.0.0.1:9/v1")))
