"""The cache in front of a model: one world per group, one request for the same call, hits in no time."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_slca import config
from verl_slca.disk_cache import CacheConfig
from verl_slca.errors import ConfigError, SimulatorFault
from verl_slca.sgls.backends import BackendRequest
from verl_slca.sgls.cache import request_key
from verl_slca.sgls.schema import compile_tool
from verl_slca.sgls.simulator import SglsConfig, Simulator
from verl_slca.trajectory import ToolCall, ToolResult

sys.path.insert(0, str(Path(__file__).parents[1]))
from misbehaving_server import MisbehavingServer, refuse

NOTES = [
    {
        "name": "add_note",
        "parameters": {"properties": {"text": {"type": "string"}}},
        "outputSchema": {"type": "object"},
    },
    {"name": "list_notes", "parameters": {"properties": {"n": {"type": "number"}}}, "outputSchema": {"type": "object"}},
]


def rollout(path: Path, server: MisbehavingServer, *calls: ToolCall, world: str = "w", seed: int = 0, **llm):
    """What a rollout sees in a simulator of its own, as in another process."""
    settings = {"backends": ["llm"], "seed": seed, "cache": {"path": str(path)}}
    settings["llm"] = {"base_url": server.url, "model": "m", "attempts": 1} | llm
    simulator = Simulator(config.parse(SglsConfig, settings, "sgls"))
    results: tuple[ToolResult, ...] = asyncio.run(simulator.episode(NOTES, world).respond(calls))
    return [result.content for result in results], simulator.figures.total()


def counting():
    """A server that never says the same thing twice."""
    said = itertools.count()
    return MisbehavingServer(lambda body: json.dumps({"n": next(said)}))


def add(text: str = "a") -> ToolCall:
    return ToolCall("add_note", {"text": text})


LIST = ToolCall("list_notes", {"n": 2})


def test_every_rollout_of_a_group_sees_one_world_though_the_model_never_repeats_itself(tmp_path):
    with counting() as server:
        first, cold = rollout(tmp_path / "c", server, LIST, add(), LIST)
        second, warm = rollout(tmp_path / "c", server, ToolCall("list_notes", {"n": 2.0}), add(), LIST)
    assert first == second
    assert len(set(first)) == 3, "after a write the same question is another"
    assert (cold.cached, cold.tokens, warm.cached, warm.tokens) == (0, 330, 3, 0)
    assert warm.kinds == {"source/llm": 3}


@pytest.mark.parametrize("changed", [{"world": "v"}, {"seed": 1}, {"model": "other"}, {"temperature": 0.5}])
def test_another_world_seed_or_model_has_answers_of_its_own(tmp_path, changed):
    with counting() as server:
        assert rollout(tmp_path / "c", server, LIST)[0] != rollout(tmp_path / "c", server, LIST, **changed)[0]


def test_another_state_has_answers_of_its_own(tmp_path):
    with counting() as server:
        after_a = rollout(tmp_path / "c", server, add("a"), LIST)[0][1]
        after_b = rollout(tmp_path / "c", server, add("b"), LIST)[0][1]
        assert after_a != after_b


def test_a_fault_is_not_kept_and_a_refusal_of_the_api_is(tmp_path):
    with MisbehavingServer([refuse(400), '{"error": "no such list"}']) as server:
        with pytest.raises(SimulatorFault):
            rollout(tmp_path / "c", server, LIST)
        for _ in range(2):
            assert rollout(tmp_path / "c", server, LIST)[0] == ["Error: no such list"]
        assert len(server.requests) == 2


def test_a_cache_without_a_model_behind_it_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="llm backend"):
        config.parse(SglsConfig, {"cache": {"path": str(tmp_path / "c")}}, "sgls")
    assert config.parse(SglsConfig, {"backends": ["llm"], "cache": {"path": "c"}}, "sgls").cache == CacheConfig("c")


@given(st.dictionaries(st.text(max_size=3), st.integers(-5, 5) | st.text(max_size=3), max_size=4), st.randoms())
def test_the_order_of_arguments_makes_no_difference(arguments, random):
    shuffled = dict(random.sample(list(arguments.items()), len(arguments)))
    one, other = (BackendRequest(compile_tool(NOTES[0]), a, "w", 0) for a in (arguments, shuffled))
    assert request_key(one, "m") == request_key(other, "m")
    assert request_key(one, "m") != request_key(one, "n")
