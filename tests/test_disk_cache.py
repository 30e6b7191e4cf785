"""The cache with real processes: single flight, SIGKILL, eviction."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from verl_slca.disk_cache import MIN_BYTES, CacheConfig, DiskCache
from verl_slca.errors import ConfigError, SimulatorFault

WORKER = """
import asyncio, sys, time
from verl_slca.disk_cache import CacheConfig, DiskCache
from verl_slca.errors import SimulatorFault
path, key, log, seconds = sys.argv[1:5]
cache = DiskCache(CacheConfig(path))

async def make():
    with open(log, "a") as file:
        file.write("made\\n")
    await asyncio.sleep(float(seconds))
    if key == "bad":
        raise SimulatorFault("server_down", "no")
    return "text"

async def main():
    try:
        print(await cache.get_or_make(key, make, SimulatorFault), flush=True)
    except SimulatorFault as fault:
        print(fault.kind, flush=True)
asyncio.run(main())
"""
WRITER = """
import sys
from verl_slca.disk_cache import CacheConfig, DiskCache
cache = DiskCache(CacheConfig(sys.argv[1], max_bytes=1 << 20))
print("ready", flush=True)
n = 0
while True:
    n += 1
    cache.put(f"{sys.argv[2]}-{n}", f"{sys.argv[2]}-{n} " * 400)
"""


def start(script: str, *args: object) -> subprocess.Popen:
    command = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def texts(cache: DiskCache, *keys: str) -> list[str | None]:
    return [cache.get(key) for key in keys]


async def never() -> str:
    raise AssertionError("made again")


def test_what_was_made_once_is_there_for_every_later_process(tmp_path):
    log = tmp_path / "log"
    for known in (False, True):
        done, _ = start(WORKER, tmp_path / "c", "k", log, 0).communicate(timeout=60)
        assert done == f"('text', {known})\n"
    assert log.read_text() == "made\n"


def test_processes_that_ask_for_the_same_at_once_make_one_call(tmp_path):
    log = tmp_path / "log"
    workers = [start(WORKER, tmp_path / "c", "k", log, 1.0) for _ in range(3)]
    said = sorted(worker.communicate(timeout=60)[0] for worker in workers)
    assert said == ["('text', False)\n"] + ["('text', True)\n"] * 2
    assert log.read_text() == "made\n"


async def test_callers_in_one_process_make_one_call_too(tmp_path):
    caches = [DiskCache(CacheConfig(str(tmp_path / "c"))) for _ in range(2)]
    made = []

    async def make() -> str:
        made.append(1)
        await asyncio.sleep(0.05)
        return "text"

    found = await asyncio.gather(*(caches[i % 2].get_or_make("k", make, SimulatorFault) for i in range(20)))
    assert [text for text, _ in found] == ["text"] * 20
    assert sum(not known for _, known in found) == len(made) == 1


async def test_those_who_waited_for_a_call_that_failed_get_its_fault_and_later_callers_try_again(tmp_path):
    cache = DiskCache(CacheConfig(str(tmp_path / "c")))
    made = []

    async def make() -> str:
        made.append(1)
        await asyncio.sleep(0.05)
        raise SimulatorFault("server_down", "no")

    calls = [cache.get_or_make("k", make, SimulatorFault) for _ in range(5)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [(type(fault), fault.kind) for fault in found] == [(SimulatorFault, "server_down")] * 5
    assert len(made) == 1

    async def better() -> str:
        return "text"

    assert await cache.get_or_make("k", better, SimulatorFault) == ("text", False)


async def test_an_error_that_is_no_fault_passes_and_leaves_no_claim(tmp_path):
    cache = DiskCache(CacheConfig(str(tmp_path / "c")))

    async def broken() -> str:
        raise OSError("a bug")

    for _ in range(2):
        with pytest.raises(OSError, match="a bug"):
            await cache.get_or_make("k", broken, SimulatorFault)


async def test_a_cancelled_maker_leaves_the_call_to_the_next(tmp_path):
    cache = DiskCache(CacheConfig(str(tmp_path / "c")))

    async def slow() -> str:
        await asyncio.sleep(60)
        return "never"

    async def quick() -> str:
        return "text"

    first = asyncio.create_task(cache.get_or_make("k", slow, SimulatorFault))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(cache.get_or_make("k", quick, SimulatorFault))
    await asyncio.sleep(0.01)
    first.cancel()
    assert await asyncio.wait_for(second, 30) == ("text", False)


async def test_a_killed_maker_leaves_the_call_to_whoever_waits(tmp_path):
    log = tmp_path / "log"
    maker = start(WORKER, tmp_path / "c", "k", log, 600)
    while not log.exists():
        await asyncio.sleep(0.05)
    cache = DiskCache(CacheConfig(str(tmp_path / "c")))

    async def make() -> str:
        return "text of the second"

    waiting = asyncio.create_task(cache.get_or_make("k", make, SimulatorFault))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    maker.send_signal(signal.SIGKILL)
    maker.communicate()
    assert await asyncio.wait_for(waiting, 30) == ("text of the second", False)


def test_writers_killed_at_any_moment_leave_whole_entries_within_the_limit(tmp_path):
    path = tmp_path / "c"
    for round_ in range(2):
        writers = [start(WRITER, path, f"{round_}{name}") for name in "ab"]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        time.sleep(0.05 + 0.2 * round_)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
        cache = DiskCache(CacheConfig(str(path), max_bytes=1 << 20))
        db = sqlite3.connect(path)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = db.execute("SELECT key, value, size FROM entries").fetchall()
        assert rows
        assert all(value == f"{key} " * 400 for key, value, _ in rows)
        assert cache.bytes_kept() == sum(size for *_, size in rows) <= 1 << 20
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        assert path.stat().st_size < 3 << 20


def test_the_oldest_entries_make_room(tmp_path):
    cache = DiskCache(CacheConfig(str(tmp_path / "c"), max_bytes=MIN_BYTES))
    for n in range(100):
        cache.put(f"k{n}", "x" * 20_000)
    assert texts(cache, "k0", "k99") == [None, "x" * 20_000]
    assert MIN_BYTES / 2 < cache.bytes_kept() <= MIN_BYTES


def test_what_came_first_stays(tmp_path):
    cache = DiskCache(CacheConfig(str(tmp_path / "c")))
    assert cache.put("k", "first") == "first"
    assert cache.put("k", "second") == "first"
    assert cache.get("k") == "first"


def test_a_forked_child_opens_its_own_connection(tmp_path):
    cache = DiskCache(CacheConfig(str(tmp_path / "c")))
    cache.put("parent", "1")
    child = os.fork()
    if child == 0:
        cache.put("child", "2")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert texts(cache, "parent", "child") == ["1", "2"]


def test_a_file_that_is_no_cache_is_named_with_the_way_out(tmp_path):
    path = tmp_path / "c"
    path.write_text("something else, and long enough to be no database" * 100)
    with pytest.raises(ConfigError, match=f"{path}.*delete the file"):
        DiskCache(CacheConfig(str(path)))


def test_a_cache_of_another_format_is_refused(tmp_path):
    DiskCache(CacheConfig(str(tmp_path / "c")))
    db = sqlite3.connect(tmp_path / "c")
    db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(ConfigError, match="format 9"):
        DiskCache(CacheConfig(str(tmp_path / "c")))


async def test_a_cache_that_fails_is_a_fault_of_its_own_kind(tmp_path):
    cache = DiskCache(CacheConfig(str(tmp_path / "c")))
    db = sqlite3.connect(tmp_path / "c")
    db.execute("DROP TABLE entries")
    db.close()
    with pytest.raises(SimulatorFault, match=r"cache_failed.*no such table"):
        await cache.get_or_make("k", never, SimulatorFault)


@pytest.mark.parametrize("changed", [{"path": ""}, {"max_bytes": 1000}])
def test_settings_out_of_range_are_refused(changed):
    with pytest.raises(ValueError, match=next(iter(changed))):
        CacheConfig(**({"path": "c"} | changed))


def test_a_cluster_is_not_served_from_a_file_of_one_machine(tmp_path):
    with pytest.raises(ConfigError, match="needs Ray"):
        DiskCache(CacheConfig(str(tmp_path / "c"), scope="cluster"))
