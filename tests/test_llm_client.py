"""The one LLM client against a real server on loopback that misbehaves."""

import asyncio
import gc
import pickle
import subprocess
import sys
import threading
import time
import weakref
from email.utils import formatdate

import pytest
from misbehaving_server import Answer, MisbehavingServer, garbage, hang_up, refuse, reply, trickle

from verl_slca import config as configs
from verl_slca import llm_client
from verl_slca.errors import ConfigError, JudgeFault, SimulatorFault
from verl_slca.llm_client import LlmClient, LlmConfig

ASK = [{"role": "user", "content": "Say something."}]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(llm_client, "FIRST_PAUSE", 0.02)


def client(server, fault=SimulatorFault, prefix="simulator", **settings) -> LlmClient:
    return LlmClient(LlmConfig(server.url, "m", **({"timeout": 5.0, "attempts": 3} | settings)), fault, prefix)


async def fault_of(server, **settings) -> SimulatorFault:
    with pytest.raises(SimulatorFault) as caught:
        await client(server, **settings).complete(ASK)
    return pickle.loads(pickle.dumps(caught.value))


async def test_a_completion_says_what_it_cost():
    with MisbehavingServer(["hello"]) as server:
        done = await client(server, temperature=0.5, max_tokens=9, seed=4).complete(ASK, seed=7)
    assert (done.text, done.finished, done.prompt_tokens, done.completion_tokens) == ("hello", True, 100, 10)
    assert done.attempts == 1
    assert done.seconds > 0
    body = server.requests[0].body
    assert body == {"model": "m", "messages": ASK, "max_tokens": 9, "temperature": 0.5, "seed": 7}


async def test_a_config_without_seed_sends_none():
    with MisbehavingServer() as server:
        await client(server, seed=None).complete(ASK, seed=7)
    assert "seed" not in server.requests[0].body


@pytest.mark.parametrize(
    ("answer", "text", "finished"),
    [
        (reply("cut", finish="length"), "cut", False),
        (reply(None, reasoning_content="secret thoughts"), "", True),
        (Answer(b'{"choices": [{"message": {"content": [{"type": "text", "text": "a"}, 3]}}]}'), "a", True),
        (Answer(b'{"choices": [{"message": {"content": "a"}}], "usage": {"prompt_tokens": "many"}}'), "a", True),
    ],
)
async def test_replies_of_every_sound_shape_are_read(answer, text, finished):
    with MisbehavingServer([answer]) as server:
        done = await client(server).complete(ASK)
    assert (done.text, done.finished) == (text, finished)


@pytest.mark.parametrize(
    "trouble", [refuse(500), refuse(429), refuse(408), garbage("<html>"), garbage("{}"), hang_up(), hang_up(20)]
)
async def test_passing_trouble_is_retried(trouble):
    with MisbehavingServer([trouble, trouble, "fine"]) as server:
        done = await client(server).complete(ASK)
    assert (done.text, done.attempts, len(server.requests)) == ("fine", 3, 3)


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (refuse(500), "simulator_error"),
        (refuse(429), "simulator_rate_limit"),
        (hang_up(), "simulator_unreachable"),
        (hang_up(20), "simulator_unreachable"),
        (Answer(headers={"Content-Length": "some"}), "simulator_unreachable"),
        (garbage("<html>"), "simulator_malformed"),
        (garbage(b"\xff\xfe\x00"), "simulator_malformed"),
        (garbage("null"), "simulator_malformed"),
        (garbage('{"choices": []}'), "simulator_malformed"),
        (garbage('{"choices": [{"message": {"content": 3}}]}'), "simulator_malformed"),
        (garbage("[" * 100_000), "simulator_malformed"),
    ],
)
async def test_lasting_trouble_is_a_fault_of_its_kind(trouble, kind):
    with MisbehavingServer([trouble]) as server:
        fault = await fault_of(server, attempts=2)
    assert fault.kind == kind
    assert len(fault.detail) < 700
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_refused_request_is_not_repeated(status):
    with MisbehavingServer([refuse(status)]) as server:
        assert (await fault_of(server)).kind == "simulator_refused"
    assert len(server.requests) == 1


@pytest.mark.parametrize("slow", [reply("late", delay=30), trickle("late", 0.05)])
async def test_the_timeout_bounds_the_whole_attempt(slow):
    with MisbehavingServer([slow, "fine"]) as server:
        assert (await client(server, timeout=0.3).complete(ASK)).attempts == 2
    with MisbehavingServer([slow]) as server:
        assert (await fault_of(server, timeout=0.2, attempts=1)).kind == "simulator_timeout"


@pytest.mark.parametrize("asked", ["0.4", lambda: formatdate(time.time() + 2, usegmt=True)])
async def test_retry_after_is_honoured(asked):
    with MisbehavingServer([refuse(429, asked if isinstance(asked, str) else asked()), "fine"]) as server:
        done = await client(server).complete(ASK)
    assert done.attempts == 2
    assert done.seconds >= 0.4


async def test_a_server_that_asks_for_an_hour_is_not_asked_again():
    with MisbehavingServer([refuse(429, "3600")]) as server:
        assert (await fault_of(server)).kind == "simulator_rate_limit"
    assert len(server.requests) == 1


async def test_a_server_that_dies_and_comes_back_within_the_retries_costs_nothing():
    with MisbehavingServer() as server:
        asking = client(server, attempts=8)
        assert (await asking.complete(ASK)).text == "ok"
        server.die()
        threading.Timer(0.3, server.revive).start()
        done = await asking.complete(ASK)
    assert done.text == "ok"
    assert done.attempts > 1


async def test_connections_that_the_server_has_closed_meanwhile_fail_no_request():
    with MisbehavingServer(lambda body: reply("ok", delay=0.02)) as server:
        asking = client(server, attempts=1)
        for _ in range(3):
            done = await asyncio.gather(*(asking.complete(ASK) for _ in range(5)))
            assert [one.text for one in done] == ["ok"] * 5
            server.die()
            server.revive()
            await asyncio.sleep(0.05)


async def test_a_dead_server_is_unreachable():
    with MisbehavingServer() as server:
        pass
    assert (await fault_of(server, attempts=2)).kind == "simulator_unreachable"


async def test_the_fault_is_the_callers_own():
    with MisbehavingServer([refuse(500)]) as server, pytest.raises(JudgeFault, match="judge_error"):
        await client(server, JudgeFault, "judge", attempts=1).complete(ASK)


def test_one_client_serves_loop_after_loop_and_keeps_none_of_them():
    with MisbehavingServer() as server:
        asking = client(server)
        loops = []

        async def once() -> str:
            loops.append(weakref.ref(asyncio.get_running_loop()))
            return (await asking.complete(ASK)).text

        assert [asyncio.run(once()) for _ in range(4)] == ["ok"] * 4
        gc.collect()
        assert sum(loop() is not None for loop in loops) <= 1


def test_one_client_serves_several_loops_at_once():
    with MisbehavingServer(lambda body: reply("ok", delay=0.02)) as server:
        asking, texts = client(server), []

        async def many() -> None:
            texts.extend(done.text for done in await asyncio.gather(*(asking.complete(ASK) for _ in range(5))))

        threads = [threading.Thread(target=asyncio.run, args=(many(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert texts == ["ok"] * 20


async def test_no_more_requests_than_allowed_are_in_flight():
    with MisbehavingServer(lambda body: reply("ok", delay=0.02)) as server:
        asking = client(server, concurrency=3)
        await asyncio.gather(*(asking.complete(ASK) for _ in range(12)))
    assert 1 < server.peak <= 3


async def test_the_key_is_sent_and_shown_nowhere_else(monkeypatch, caplog):
    caplog.set_level("DEBUG")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    with MisbehavingServer([refuse(401, message="wrong key: " + " sk-canary" * 99)]) as server:
        fault = await fault_of(server)
    assert server.requests[0].headers["authorization"] == "Bearer sk-canary"
    assert fault.kind == "simulator_refused"
    assert "sk-" not in str(fault) + repr(client(server).config) + caplog.text


async def test_loopback_ignores_proxies(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with MisbehavingServer() as server:
        assert (await client(server).complete(ASK)).text == "ok"


@pytest.mark.parametrize("scheme", ["http://", ""])
async def test_another_host_is_asked_through_the_proxy_of_the_environment(monkeypatch, scheme):
    elsewhere = LlmConfig("http://models.invalid/v1", "m", timeout=5.0, attempts=1)
    with MisbehavingServer() as server:
        monkeypatch.setenv("http_proxy", server.url.replace("http://", scheme).removesuffix("/v1"))
        assert (await LlmClient(elsewhere, SimulatorFault, "simulator").complete(ASK)).text == "ok"
    assert server.requests[0].headers["host"] == "models.invalid"


async def test_a_proxy_of_another_kind_is_refused_unless_the_host_needs_none(monkeypatch):
    elsewhere = LlmConfig("http://models.invalid/v1", "m", attempts=1)
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.setenv("all_proxy", "socks5://user:secret@127.0.0.1:1")
    with pytest.raises(ConfigError, match="a socks5 proxy") as caught:
        await LlmClient(elsewhere, SimulatorFault, "simulator").complete(ASK)
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("no_proxy", "models.invalid")
    with pytest.raises(SimulatorFault, match="simulator_unreachable"):
        await LlmClient(elsewhere, SimulatorFault, "simulator").complete(ASK)


ONE_CALL = """
import asyncio, sys
from verl_slca.errors import SimulatorFault
from verl_slca.llm_client import LlmClient, LlmConfig

async def ask():
    client = LlmClient(LlmConfig(sys.argv[1], "m"), SimulatorFault, "simulator")
    print((await client.complete([{"role": "user", "content": "Say something."}])).text)

"""


@pytest.mark.parametrize("run", ["asyncio.run(ask())", "asyncio.new_event_loop().run_until_complete(ask())"])
def test_no_connection_is_left_open_when_a_loop_or_the_process_ends(run):
    with MisbehavingServer() as server:
        command = [sys.executable, "-c", f"{ONE_CALL}\n{run}\n{run}", server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["ok", "ok"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_url": "localhost:8000"},
        {"base_url": "http://user:secret@host/v1"},
        {"base_url": "http://host/v1?api-key=secret"},
        {"model": ""},
        {"timeout": 0.0},
        {"attempts": 0},
        {"concurrency": 0},
        {"max_tokens": 0},
        {"temperature": 3.0},
    ],
)
def test_settings_out_of_range_are_refused_by_name(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))) as caught:
        configs.parse(LlmConfig, wrong, "llm")
    assert "secret" not in str(caught.value)
