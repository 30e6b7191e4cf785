"""The cluster's cache on a real local Ray."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

import ray

from verl_slca.adapters.shared_cache import SharedCache
from verl_slca.disk_cache import CacheConfig
from verl_slca.errors import SimulatorFault

pytestmark = pytest.mark.verl


@pytest.fixture(scope="module", autouse=True)
def local_ray() -> Any:
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(num_cpus=1, include_dashboard=False, configure_logging=False, object_store_memory=80 << 20)
    yield
    ray.shutdown()


def worker(path: str, key: str, log: str, seconds: float) -> Any:
    async def make() -> str:
        with Path(log).open("a") as file:
            file.write(f"{os.getpid()}\n")
        await asyncio.sleep(seconds)
        if key == "bad":
            raise SimulatorFault("server_down", "no")
        return "text"

    async def ask() -> list[Any]:
        cache = SharedCache(CacheConfig(path, scope="cluster"), lease=2.0)
        calls = [cache.get_or_make(key, make, SimulatorFault) for _ in range(3)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        return [one.kind if isinstance(one, SimulatorFault) else one for one in found]

    return asyncio.run(ask())


def test_workers_of_a_cluster_make_one_call_share_its_fault_and_survive_a_killed_maker(tmp_path):
    ask = ray.remote(num_cpus=0, max_retries=0)(worker)
    path, logs = str(tmp_path / "c"), [str(tmp_path / name) for name in "xyz"]

    found = ray.get([ask.remote(path, "k", logs[0], 0.5) for _ in range(2)])
    assert sorted(known for one in found for text, known in one) == [False] + [True] * 5
    assert len(Path(logs[0]).read_text().split()) == 1

    assert ray.get(ask.remote(path, "bad", logs[1], 0.3)) == ["server_down"] * 3
    assert len(Path(logs[1]).read_text().split()) == 1

    ask.remote(path, "killed", logs[2], 600)
    while not Path(logs[2]).exists():
        time.sleep(0.05)
    os.kill(int(Path(logs[2]).read_text()), signal.SIGKILL)
    found = ray.get(ask.remote(path, "killed", logs[2], 0), timeout=120)
    assert sorted(known for _, known in found) == [False, True, True]
