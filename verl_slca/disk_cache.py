"""Texts kept on disk and made once: shared by every process of a machine, whatever happens to one of them.

SQLite in WAL mode, from the standard library. Readers never wait, a process killed at any moment leaves whole
entries or none, and a hit is one indexed read. (`diskcache` stores pickles, which run as code when read, and has
nothing that lets two processes share one call.) A call in flight is claimed with a record lock of the operating
system, which goes with its process: nothing expires, nothing has to be cleaned up.

What came first stays: entries never change, and the oldest go first when the limit is reached. Hits write nothing,
and a data set read epoch by epoch uses its entries in the order in which they were made anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import tenacity

from verl_slca.errors import ConfigError, InfrastructureFault

FORMAT = 1
MIN_BYTES = 1 << 20
_ENTRY_BYTES = 100
"""What a row costs beside its value, about."""
_EVICTED_AT_ONCE = 16
_FAILURES_KEPT = 3600.0
"""Seconds for which a failure is known to those who waited for the call."""
_PAUSES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""Seconds between two looks at what somebody else is making."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, value TEXT NOT NULL,
                                    size INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS failures (key TEXT PRIMARY KEY, kind TEXT NOT NULL, detail TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS total (bytes INTEGER NOT NULL);
INSERT INTO total SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM total);
CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON entries BEGIN UPDATE total SET bytes = bytes + new.size; END;
CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON entries BEGIN UPDATE total SET bytes = bytes - old.size; END;
"""


class CacheError(Exception):
    """The file cannot be read or written."""


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """Where answers of models are kept.

    Attributes:
        path: the file, on a local disk; made when it is not there.
        max_bytes: answers kept, in bytes; the oldest go first.
        scope: who shares it: ``"machine"``, or ``"cluster"`` (one Ray actor holds the file for all machines).
    """

    path: str
    max_bytes: int = 1 << 30
    scope: Literal["machine", "cluster"] = "machine"

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("path must name a file")
        if self.max_bytes < MIN_BYTES:
            raise ValueError(f"max_bytes must be at least {MIN_BYTES}, got {self.max_bytes}")


class Cache(Protocol):
    """Texts by key, each made once."""

    async def get_or_make(
        self, key: str, make: Callable[[], Awaitable[str]], fault: type[InfrastructureFault]
    ) -> tuple[str, bool]:
        """(the text of `key`, whether it was there before this call).

        While somebody makes it, everybody else who asks for it waits and gets the same: the text, or the fault.

        Args:
            key: names the text for good.
            make: makes it; awaited by one caller at a time.
            fault: what the cache raises when it fails itself, or when the maker failed with another one's fault.

        Raises:
            InfrastructureFault: what `make` raised, here or for the caller who was waited for.
        """


class DiskCache:
    """A `Cache` in one SQLite file.

    Args:
        config: where, and how much.

    Raises:
        ConfigError: the file cannot be used; says why and what to do.
    """

    def __init__(self, config: CacheConfig) -> None:
        if config.scope == "cluster":
            raise ConfigError(f"cache {config.path}: scope 'cluster' needs Ray, that is training; use 'machine' here")
        self.path = Path(config.path).resolve()
        self._max_bytes = config.max_bytes
        self._local = threading.local()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection()
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(f"cache {self.path}: {error}; delete the file or choose another path") from error

    async def get_or_make(
        self, key: str, make: Callable[[], Awaitable[str]], fault: type[InfrastructureFault]
    ) -> tuple[str, bool]:
        """See `Cache.get_or_make`; the cache's own failure is of kind ``"cache_failed"``."""
        started = time.time()
        pauses = iter(_PAUSES)
        claims = _claims(os.getpid(), str(self.path))
        try:
            while True:
                found = self.get(key)
                if found is not None:
                    return found, True
                with claims.held(key) as mine:
                    if mine:
                        found = self.get(key)  # its maker may have ended between the look and the claim
                        if found is not None:
                            return found, True
                        self._raise_failure(key, started, fault)
                        return await self._made(key, make), False
                await asyncio.sleep(next(pauses, _PAUSES[-1]))
        except CacheError as error:
            raise fault("cache_failed", str(error)) from error

    async def _made(self, key: str, make: Callable[[], Awaitable[str]]) -> str:
        try:
            text = await make()
        except InfrastructureFault as failure:
            with self._transaction() as db:
                db.execute("DELETE FROM failures WHERE at < ?", (time.time() - _FAILURES_KEPT,))
                row = (key, failure.kind, failure.detail, time.time())
                db.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?)", row)
            raise
        return self.put(key, text)

    def _raise_failure(self, key: str, since: float, fault: type[InfrastructureFault]) -> None:
        """The fault of a call that was in flight while this one waited, raised here too."""
        row = self._row("SELECT kind, detail FROM failures WHERE key = ? AND at >= ?", (key, since))
        if row:
            raise fault(*row)

    def get(self, key: str) -> str | None:
        """The text of `key`, None when there is none. Raises `CacheError`."""
        row = self._row("SELECT value FROM entries WHERE key = ?", (key,))
        return row[0] if row else None

    def put(self, key: str, text: str) -> str:
        """The text that `key` has now: the one that was there, else `text`. Raises `CacheError`."""
        size = _ENTRY_BYTES + len(key) + len(text.encode())
        with self._transaction() as db:
            added = "INSERT INTO entries (key, value, size) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
            if db.execute(added, (key, text, size)).rowcount == 0:
                return self.get(key) or text
            while self.bytes_kept() > self._max_bytes:
                oldest = "SELECT id FROM entries ORDER BY id LIMIT ?"
                db.execute(f"DELETE FROM entries WHERE id IN ({oldest})", (_EVICTED_AT_ONCE,))
        return text

    def bytes_kept(self) -> int:
        """Size of all entries, in bytes; the file is somewhat larger. Raises `CacheError`."""
        row = self._row("SELECT bytes FROM total", ())
        return int(row[0]) if row else 0

    def _row(self, sql: str, values: tuple[object, ...]) -> tuple[Any, ...] | None:
        try:
            row: tuple[Any, ...] | None = self._connection().execute(sql, values).fetchone()
        except sqlite3.Error as error:
            raise CacheError(f"{self.path}: {error}") from error
        return row

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            db = self._connection()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise CacheError(f"{self.path}: {error}") from error

    def _connection(self) -> sqlite3.Connection:
        """This thread's connection; SQLite's must not be carried over a fork."""
        owner, connection = getattr(self._local, "opened", (0, None))
        if connection is None or owner != os.getpid():
            connection = _opened(self.path)
            self._local.opened = (os.getpid(), connection)
        return connection


@tenacity.retry(  # switching a new file to WAL does not wait for a lock by itself
    retry=tenacity.retry_if_exception_message(match="database is locked"),
    wait=tenacity.wait_random(0.01, 0.1),
    stop=tenacity.stop_after_delay(30),
    reraise=True,
)
def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=30.0, isolation_level=None)
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise sqlite3.OperationalError(f"journal mode is {mode!r}, not 'wal': the file must lie on a local disk")
    connection.execute("PRAGMA synchronous = NORMAL")  # safe against a killed process; no fsync per entry
    connection.execute("PRAGMA journal_size_limit = 4194304")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, FORMAT):
        raise sqlite3.DatabaseError(f"written in format {version}, this version reads {FORMAT}")
    if version == 0:
        connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
    return connection


class _Claims:
    """Which keys are being made, over all processes: one byte of a lock file each.

    Record locks belong to the process and all go when it closes any descriptor of the file. So there is one object
    per file and process, its file stays open, and callers inside the process are told apart by `_mine`.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._mine: set[int] = set()
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def held(self, key: str) -> Iterator[bool]:
        """True inside when the key is this caller's now; False when somebody else has it."""
        place = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 2
        with self._guard:
            mine = place not in self._mine and self._lock(place)
            if mine:
                self._mine.add(place)
        try:
            yield mine
        finally:
            if mine:
                with self._guard:
                    self._mine.discard(place)
                    fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place)

    def _lock(self, place: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):
            return False
        return True


@functools.cache
def _claims(process: int, path: str) -> _Claims:
    return _Claims(path)
