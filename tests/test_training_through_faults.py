"""A real training whose tools are played by a model server that misbehaves in every way it can."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")
sys.path.insert(0, str(Path(__file__).parent / "adapters" / "cpu"))

import tiny_model
import torch
from misbehaving_server import Answer, MisbehavingServer, garbage, hang_up, refuse, reply
from recipe_training import row, train
from transformers import AutoModelForCausalLM, AutoTokenizer

from verl_slca.prepare import write_parquet
from verl_slca.reproducible import use_reproducible_kernels
from verl_slca.training_curve import read_steps

pytestmark = [pytest.mark.verl, pytest.mark.slow]

HOSTS = "123456789"
PING = {
    "name": "ping",
    "parameters": {"type": "object", "properties": {"host": {"type": "string"}}, "required": ["host"]},
    "outputSchema": {
        "type": "object",
        "properties": {"milliseconds": {"type": "integer"}},
        "required": ["milliseconds"],
    },
}
SIMULATED = "+actor_rollout_ref.rollout.custom.sgls"
TROUBLES = (
    lambda sound: reply(sound, delay=1.0),
    lambda sound: refuse(429, retry_after="1"),
    lambda sound: refuse(500),
    lambda sound: garbage("<html>Bad gateway</html>"),
    lambda sound: garbage('{"choices": []}'),
    lambda sound: hang_up(),
    lambda sound: hang_up(sent=5),
    lambda sound: reply("I'm sorry, as an AI I cannot ping."),
    lambda sound: reply('{"milliseconds": "few"}'),
)


def sound(body: dict[str, Any]) -> str:
    """What the server answers when it is well: a function of the request alone."""
    return json.dumps({"milliseconds": zlib.crc32(body["messages"][1]["content"].encode()) % 90 + 10})


class Misbehaving:
    """A script: each request fails once, in the way that its content draws; asked again, it is answered."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def __call__(self, body: dict[str, Any]) -> Answer | str:
        shown = body["messages"][1]["content"]
        self.seen[shown] += 1
        if self.seen[shown] > 1:
            return sound(body)
        return TROUBLES[zlib.crc32(shown.encode()) // 90 % len(TROUBLES)](sound(body))


def ping(number: int) -> dict[str, Any]:
    host = HOSTS[number % len(HOSTS)]
    return row(PING, f"Ping {host}.", json.dumps([[{"name": "ping", "arguments": {"host": host}}]]))


def caller(folder: Path) -> None:
    """In `folder`, a model that pings some host or other and then says what came back."""
    torch.set_num_threads(1)  # two of them wait for each other longer than either computes
    tiny_model.build(folder, hidden=64, layers=2)
    tokenizer, rng = AutoTokenizer.from_pretrained(folder), random.Random(0)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def conversation() -> str:
        call = json.dumps({"name": "ping", "arguments": {"host": rng.choice(HOSTS)}})
        answer = rng.randrange(10, 100)
        messages = [
            *ping(rng.randrange(9))["prompt"],
            {"role": "assistant", "content": f"<tool_call>\n{call}\n</tool_call>"},
            {"role": "tool", "content": json.dumps({"milliseconds": answer})},
            {"role": "assistant", "content": f"It took {answer}."},
        ]
        return tokenizer.apply_chat_template(messages, tokenize=False)

    prompt = len(tokenizer(tokenizer.apply_chat_template(ping(0)["prompt"], tokenize=False)).input_ids)
    for _ in range(150):
        batch = tokenizer([conversation() for _ in range(8)], return_tensors="pt", padding=True, padding_side="right")
        labels = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
        labels[:, :prompt] = -100
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("faults")
    caller(directory / "model")
    for name in ("rl", "heldout"):
        write_parquet([ping(number) for number in range(18)], directory / f"{name}.parquet")
    return directory


def simulated(directory: Path, name: str, server: MisbehavingServer, *overrides: str) -> tuple[int, str]:
    """Exit code and output of two steps of training, the tools played by `server`."""
    result = train(
        directory,
        directory / "model",
        directory / name,
        f"{SIMULATED}.backends=[llm]",
        f"{SIMULATED}.llm.base_url={server.url}",
        "actor_rollout_ref.rollout.temperature=0.5",
        "actor_rollout_ref.actor.optim.lr=1e-5",
        "data.max_prompt_length=512",
        "data.max_response_length=160",
        "trainer.total_training_steps=2",
        *overrides,
    )
    return result.returncode, result.stdout


def rollouts(output: Path, step: int) -> list[dict[str, Any]]:
    """The rollouts of a step in an order that only what they hold decides."""
    lines = [json.loads(line) for line in (output / "rollouts" / f"{step}.jsonl").read_text().splitlines()]
    return sorted(({k: v for k, v in line.items() if k != "uid"} for line in lines), key=json.dumps)


def learned(output: Path) -> dict[int, dict[str, float]]:
    """Metrics by step, without those that are about speed and about the simulator.

    To compare the numbers of two runs: exactly where the kernels are reproducible, else up to rounding.
    """
    aside = ("timing", "perf/", "actor/perf/", "sgls/")
    exact = use_reproducible_kernels()
    return {
        step: {
            key: value if exact else pytest.approx(value, rel=1e-3, abs=1e-6)
            for key, value in metrics.items()
            if not key.startswith(aside)
        }
        for step, metrics in read_steps(output / "metrics").items()
    }


def die_and_come_back(server: MisbehavingServer, after: int, seconds: float) -> None:
    """The server cut off once it has had `after` requests, and started again."""
    while len(server.requests) < after:
        time.sleep(0.05)
    server.die()
    time.sleep(seconds)
    server.revive()


@pytest.fixture(scope="module")
def without_faults(directory: Path) -> Path:
    with MisbehavingServer(sound) as server:
        code, output = simulated(directory, "sound", server)
    assert code == 0, output[-4000:]
    return directory / "sound"


def test_through_a_misbehaving_server_the_same_is_learned_and_no_rollout_is_lost(directory, without_faults):
    misbehaving = Misbehaving()
    with MisbehavingServer(misbehaving) as server:
        dying = threading.Thread(target=die_and_come_back, args=(server, 12, 3.0))
        dying.start()
        code, output = simulated(directory, "misbehaving", server)
        dying.join()
    assert code == 0, output[-4000:]
    assert max(misbehaving.seen.values()) > 1
    steps = read_steps(directory / "misbehaving" / "metrics")
    assert [steps[step]["faults/lost"] for step in (1, 2)] == [0, 0]
    assert steps[1]["sgls/source/llm"] > 0
    assert learned(directory / "misbehaving") == learned(without_faults)
    for step in (1, 2):
        assert rollouts(directory / "misbehaving", step) == rollouts(without_faults, step)


class Breaking:
    """A script: one request in `share`, which one its content says, is refused however often it is sent."""

    def __init__(self) -> None:
        self.share = 4

    def __call__(self, body: dict[str, Any]) -> Answer | str:
        if zlib.crc32(body["messages"][1]["content"].encode()) // 90 % self.share:
            return sound(body)
        return refuse(400)


def test_lost_rollouts_have_no_score_and_too_many_of_them_stop_the_training(directory):
    breaking, output = Breaking(), directory / "breaking"

    def break_for_good() -> None:
        while not (output / "rollouts" / "1.jsonl").exists():
            time.sleep(0.05)
        breaking.share = 1

    threading.Thread(target=break_for_good, daemon=True).start()
    with MisbehavingServer(breaking) as server:
        code, said = simulated(directory, "breaking", server, "+algorithm.slca.max_lost_share=0.5")
    assert 1 in read_steps(output / "metrics"), said[-4000:]
    first = read_steps(output / "metrics")[1]
    lost = [line for line in rollouts(output, 1) if line["fault"]]
    assert 0 < len(lost) < 16
    assert {line["fault"] for line in lost} == {"simulator_refused"}
    assert {(line["score"], line["process"], line["summary"]) for line in lost} == {(None, None, None)}
    assert first["faults/lost"] == first["faults/simulator_refused"] == first["sgls/faults"] == len(lost)
    scores = [line["score"] for line in rollouts(output, 1) if not line["fault"]]
    assert first["rollout/score/mean"] == pytest.approx(sum(scores) / len(scores))
    assert code != 0
    assert "rollouts_lost" in said
    assert "more than algorithm.slca.max_lost_share=0.5 allows" in said
    assert sorted(read_steps(output / "metrics")) == [1]


SHORT = (
    "actor_rollout_ref.rollout.temperature=0.5",
    "data.max_prompt_length=512",
    "data.max_response_length=160",
    "trainer.total_training_steps=2",
)


def broken_plugin(folder: Path, owner: str, method: str, sound_calls: int) -> dict[str, str]:
    """Environment in which a method of the agent loop raises once it has worked `sound_calls` times."""
    (folder / "broken_loop.py").write_text(
        f"""
from verl_slca.adapters import agent_loop

sound, seen = agent_loop.{owner}.{method}, []


def {method}(*args, **kwargs):
    seen.append(1)
    if len(seen) > {sound_calls}:
        raise RuntimeError("a bug in {owner}.{method}")
    return sound(*args, **kwargs)


agent_loop.{owner}.{method} = {method}
""",
        encoding="utf-8",
    )
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    return {"PYTHONPATH": path, "VERL_USE_EXTERNAL_MODULES": "broken_loop"}


@pytest.mark.parametrize(
    ("owner", "method", "kind"),
    [("TokenPolicy", "observe", "rollout_RuntimeError"), ("SlcaAgentLoop", "__init__", "never_returned")],
)
def test_rollouts_lost_to_a_bug_stop_the_training_and_say_which(directory, monkeypatch, owner, method, kind):
    """Verl alone pads over them: nothing lost, exit code 0, and the mean of the few that made no call."""
    for name, value in broken_plugin(directory, owner, method, 3).items():
        monkeypatch.setenv(name, value)
    output = directory / f"broken_{method}"
    result = train(directory, directory / "model", output, *SHORT)
    assert result.returncode != 0
    assert f"{kind}: 1" in result.stdout
    assert "more than algorithm.slca.max_lost_share=0.5 allows" in result.stdout
    assert f"a bug in {owner}.{method}" in result.stdout
    assert not (output / "rollouts").exists()


def test_below_the_share_they_are_counted(directory, monkeypatch):
    for name, value in broken_plugin(directory, "SlcaAgentLoop", "__init__", 13).items():
        monkeypatch.setenv(name, value)
    output = directory / "broken_few"
    result = train(directory, directory / "model", output, *SHORT, "trainer.total_training_steps=1")
    assert result.returncode == 0, result.stdout[-4000:]
    step = read_steps(output / "metrics")[1]
    assert step["faults/lost"] == step["faults/never_returned"] > 0
