"""A hit in a cache of a hundred thousand answers: the target is under a millisecond."""

import asyncio

import pytest

from verl_slca.disk_cache import CacheConfig, DiskCache
from verl_slca.sgls.backends import BackendRequest, BackendResponse
from verl_slca.sgls.cache import CachedBackend
from verl_slca.sgls.schema import compile_tool

ENTRIES = 100_000


class NeverAsked:
    async def respond(self, request: BackendRequest) -> BackendResponse:
        raise AssertionError("not a hit")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> DiskCache:
    cache = DiskCache(CacheConfig(str(tmp_path_factory.mktemp("cache") / "c")))
    with cache._transaction() as db:
        rows = ((f"key {n}", "x" * 400, 500) for n in range(ENTRIES))
        db.executemany("INSERT INTO entries (key, value, size) VALUES (?, ?, ?)", rows)
    return cache


@pytest.mark.benchmark(group="sgls")
def test_a_hit(benchmark, cache):
    """One `CachedBackend.respond`, key and all; reported as `microseconds_per_hit` in ``--benchmark-json``."""
    tool = compile_tool({"name": "t", "parameters": {"properties": {"city": {"type": "string"}}}})
    requests = [BackendRequest(tool, {"city": f"city {n}"}, "w", 0) for n in range(200)]

    class Says:
        async def respond(self, request: BackendRequest) -> BackendResponse:
            return BackendResponse("y" * 400)

    async def ask(backend: CachedBackend) -> int:
        return sum([(await backend.respond(request)).cached for request in requests])

    asyncio.run(ask(CachedBackend(Says(), cache, "m")))
    backend = CachedBackend(NeverAsked(), cache, "m")
    hits = benchmark.pedantic(lambda: asyncio.run(ask(backend)), rounds=10, warmup_rounds=1)
    benchmark.extra_info["microseconds_per_hit"] = round(benchmark.stats.stats.median / len(requests) * 1e6)
    assert hits == len(requests)
