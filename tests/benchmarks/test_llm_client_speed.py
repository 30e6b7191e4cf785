"""200 LLM calls at once against a server that takes 50 ms each: how many times the ideal they take.

The ideal is 50 ms per batch of as many calls as may be in flight. The server has a process of its own.
"""

import asyncio
import math

import pytest
from instant_server import instant_server

from verl_slca.errors import SimulatorFault
from verl_slca.llm_client import LlmClient, LlmConfig

CALLS, SECONDS = 200, 0.05
MESSAGES = [{"role": "system", "content": "You are an API. " * 50}, {"role": "user", "content": "The call. " * 200}]


@pytest.mark.benchmark(group=f"{CALLS} calls of {SECONDS * 1000:.0f} ms")
@pytest.mark.parametrize("concurrency", [LlmConfig().concurrency, CALLS])
def test_calls_of_an_llm(benchmark, concurrency):
    """The target is 1.3 times the ideal; reported as `times_ideal` in ``--benchmark-json``."""
    with instant_server(SECONDS) as url, asyncio.Runner() as runner:
        client = LlmClient(LlmConfig(url, "m", concurrency=concurrency), SimulatorFault, "simulator")

        async def all_calls() -> int:
            return len(await asyncio.gather(*(client.complete(MESSAGES) for _ in range(CALLS))))

        count = benchmark.pedantic(lambda: runner.run(all_calls()), rounds=10, warmup_rounds=1)
    ideal = SECONDS * math.ceil(CALLS / concurrency)
    benchmark.extra_info["times_ideal"] = round(benchmark.stats.stats.median / ideal, 2)
    assert count == CALLS
