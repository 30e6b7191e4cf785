"""The HTTP service and the MCP server as real processes, asked by real clients."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from verl_slca.sgls import service
from verl_slca.sgls.service import Episodes
from verl_slca.sgls.simulator import SglsConfig, Simulator

TOOLS = [
    {
        "name": "create_note",
        "description": "Add <b>a</b> note",
        "parameters": {"properties": {"text": {"type": "string"}}},
    },
    {"name": "get_note", "parameters": {"properties": {"note_id": {"type": "string"}}, "required": ["note_id"]}},
]
SLCA = [sys.executable, "-c", "from verl_slca.cli import main; main()", "simulate"]
BROKEN_MODEL = "backends: [llm]\nllm: {base_url: 'http://127.0.0.1:9/v1', attempts: 1}\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("service")
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    (folder / "broken.yaml").write_text(BROKEN_MODEL)
    return folder


class Server:
    """`slca simulate` in a process of its own."""

    def __init__(self, *arguments: object, token: str = "") -> None:
        env = {**os.environ, "SLCA_SIMULATOR_TOKEN": token}
        command = [*SLCA, *map(str, arguments), "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"running on (http://\S+)", line):
                self.url = found.group(1)
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture(scope="module")
def http(files: Path) -> Iterator[httpx.Client]:
    server = Server("--tools", files / "tools.json")
    with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
        yield client
    server.stop()


def opened(http: httpx.Client, world: str = "w") -> str:
    return str(http.post("/episodes", json={"world": world}).json()["episode"])


def called(http: httpx.Client, episode: str, name: str, **arguments: Any) -> dict[str, Any]:
    return dict(http.post(f"/episodes/{episode}/calls", json={"name": name, "arguments": arguments}).json())


def test_an_episode_is_opened_called_reset_and_deleted(http):
    assert http.get("/tools").json() == TOOLS
    episode = opened(http)
    added = called(http, episode, "create_note", text="milk")
    assert not added["is_error"]
    note = json.loads(added["content"])["note_id"]
    assert "milk" in called(http, episode, "get_note", note_id=note)["content"]
    assert http.post(f"/episodes/{episode}/reset").status_code == 204
    assert "milk" not in called(http, episode, "get_note", note_id=note)["content"]
    assert http.delete(f"/episodes/{episode}").status_code == 204
    assert http.post(f"/episodes/{episode}/calls", json={"name": "create_note"}).status_code == 404


def test_equal_worlds_answer_equally_and_invalid_calls_as_the_tool_would(http):
    one, other = (called(http, opened(http, "w1"), "get_note", note_id="n1") for _ in range(2))
    assert one == other
    wrong = called(http, opened(http), "get_note")
    assert wrong["is_error"]
    assert wrong["content"] == "Error: invalid arguments for get_note: note_id: is required (string)."


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{" + b'"a":' * 10, 422),
        (b"[" * 200_000, 422),
        (b'{"name": "get_note", "arguments": {"note_id": ' + b"[" * 50_000 + b"]" * 50_000 + b"}}", 422),
        (b'{"name": "x", "surprise": 1}', 422),
        (b'{"name": "' + b"x" * 2000 + b'"}', 422),
        (b'{"name": "\\ud800", "arguments": {"\\udfff": NaN}}', 422),
        (b'{"name": "get_note", "arguments": {"note_id": NaN}}', 200),
        (b" " * (1 << 20) + b"{}", 413),
    ],
)
def test_whatever_is_sent_is_refused_in_bounds_and_the_server_lives(http, body, status):
    answer = http.post(f"/episodes/{opened(http)}/calls", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (status, 400)
    assert len(answer.content) < 1 << 20
    assert http.get("/tools").status_code == 200


def test_a_body_without_a_length_is_limited_too(http):
    chunks = (b"x" * 65536 for _ in range(64))
    assert http.post("/episodes", content=chunks).status_code == 413


def test_a_page_of_another_host_cannot_ask(http):
    assert http.get("/tools", headers={"Host": "evil.example"}).status_code == 403
    assert http.get("/tools", headers={"Host": "localhost:1"}).status_code == 200


def test_responses_are_json_and_metrics_are_text_so_that_no_browser_reads_them_as_a_page(http):
    assert http.get("/tools").headers["content-type"] == "application/json"
    metrics = http.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'sgls_calls_total{outcome="valid",tool="get_note"}' in metrics.text
    assert 'sgls_source_total{kind="rules"}' in metrics.text
    assert 'sgls_latency_seconds_bucket{le="+Inf"}' in metrics.text


def test_the_interface_is_described(http):
    described = http.get("/openapi.json").json()
    assert set(described["paths"]) >= {"/tools", "/episodes", "/episodes/{episode}/calls", "/metrics"}
    assert http.get("/docs").status_code == 404


def test_with_a_token_nothing_is_answered_without_it_and_a_fault_is_no_answer(files):
    server = Server("--tools", files / "tools.json", "--config", files / "broken.yaml", token="secret")
    try:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
            for path in ("/tools", "/metrics", "/openapi.json"):
                assert client.get(path).status_code == 401
                assert client.get(path, headers={"Authorization": "Bearer secre"}).status_code == 401
            client.headers["Authorization"] = "Bearer secret"
            answer = client.post(f"/episodes/{opened(client)}/calls", json={"name": "create_note"})
            assert (answer.status_code, answer.json()["detail"]["kind"]) == (502, "simulator_unreachable")
            assert 'sgls_fault_total{kind="simulator_unreachable"} 1.0' in client.get("/metrics").text
    finally:
        server.stop()


@pytest.mark.parametrize("command", [[], ["mcp", "--http"]])
def test_other_machines_are_not_served_without_a_token(files, command):
    where = ["--tools", str(files / "tools.json"), "--host", "0.0.0.0"]
    env = {name: value for name, value in os.environ.items() if name != "SLCA_SIMULATOR_TOKEN"}
    done = subprocess.run([*SLCA, *command, *where], capture_output=True, text=True, env=env, timeout=60, check=False)
    assert done.returncode == 2
    assert "SLCA_SIMULATOR_TOKEN" in done.stderr


async def check_mcp(client: Client) -> None:
    listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(listed) == {"create_note", "get_note"}
    assert listed["get_note"].input_schema["required"] == ["note_id"]
    added = await client.call_tool("create_note", {"text": "milk"})
    assert not added.is_error
    note = json.loads(added.content[0].text)["note_id"]
    assert "milk" in (await client.call_tool("get_note", {"note_id": note})).content[0].text
    wrong = await client.call_tool("get_not", {})
    assert wrong.is_error
    assert "Did you mean 'get_note'" in wrong.content[0].text


def stdio(files: Path, *more: str) -> StdioServerParameters:
    arguments = [*SLCA[1:], "mcp", "--tools", str(files / "tools.json"), *more]
    return StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))


async def test_an_mcp_client_calls_simulated_tools_over_stdio(files):
    async with Client(stdio(files)) as client:
        await check_mcp(client)


async def test_an_mcp_client_calls_simulated_tools_over_http(files):
    server = Server("mcp", "--tools", files / "tools.json", "--http")
    try:
        async with Client(server.url + "/mcp") as client:
            await check_mcp(client)
    finally:
        server.stop()


async def test_a_fault_is_an_error_of_the_protocol_not_a_result(files):
    async with Client(stdio(files, "--config", str(files / "broken.yaml"))) as client:
        with pytest.raises(MCPError, match="simulator_unreachable"):
            await client.call_tool("create_note", {})


def test_the_number_of_episodes_is_limited_and_idle_ones_make_room(monkeypatch):
    monkeypatch.setattr(service, "MAX_EPISODES", 3)
    episodes = Episodes(Simulator(SglsConfig()), TOOLS)
    for name in "abc":
        episodes.open(name, "w")
    with pytest.raises(OverflowError, match="3 episodes are open"):
        episodes.open("d", "w")
    episodes.open("a", "v")
    monkeypatch.setattr(service, "IDLE_SECONDS", -1.0)
    episodes.open("d", "w")
    assert [name in episodes for name in "abcd"] == [False, False, False, True]
