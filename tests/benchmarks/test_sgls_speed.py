"""Calls a second through validation and the rules backend, over the real tools, on one core."""

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from verl_slca.sgls.generate import generate_arguments
from verl_slca.sgls.simulator import SglsConfig, Simulator
from verl_slca.trajectory import ToolCall

_SHARED = Path(os.environ.get("SLCA_SHARED", Path(__file__).parents[3] / "shared"))
_CORPUS = _SHARED / "data" / "mcp_tools.jsonl"
pytestmark = pytest.mark.skipif(not _CORPUS.exists(), reason=f"{_CORPUS} is absent; set SLCA_SHARED")


@pytest.mark.benchmark(group="sgls", timer=time.process_time)
def test_validated_rules_responses(benchmark):
    """The target is 5,000 calls per CPU second; reported as `calls_per_second` in ``--benchmark-json``."""
    simulator = Simulator(SglsConfig())
    work = [
        (simulator.episode([tool], "w"), ToolCall(tool["name"], generate_arguments(tool["input_schema"], 0)))
        for tool in map(json.loads, _CORPUS.read_text().splitlines())
    ]

    async def all_calls() -> int:
        return len([await episode.respond([call]) for episode, call in work])

    count = benchmark.pedantic(lambda: asyncio.run(all_calls()), rounds=3, warmup_rounds=1)
    benchmark.extra_info["calls_per_second"] = round(count / benchmark.stats.stats.min)
    assert count == len(work)
