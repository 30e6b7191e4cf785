"""One cache for a whole Ray cluster: a named actor holds the file, every worker of every machine asks it.

On one machine `DiskCache` is shared by itself; this is for `cache.scope: cluster`. The claim of a call that is being
made lies with the actor and is renewed by its maker: a maker that died stops renewing, and the next who waits makes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

from verl_slca.disk_cache import Cache, CacheConfig, DiskCache
from verl_slca.errors import ConfigError, InfrastructureFault

LEASE = 15.0
"""Seconds after which the claim of a maker that does not renew it is free."""
_PATIENCE = 10.0
"""Seconds that one question waits inside the actor for somebody else's answer."""
_CLAIMED, _FOUND, _FAILED, _WAIT = "claimed", "found", "failed", "wait"


def open_cache(config: CacheConfig | None) -> Cache | None:
    """The cache that `config` describes, None for none.

    Raises:
        ConfigError: the file cannot be used on this machine, or scope is ``"cluster"`` outside of Ray.
    """
    if config is None:
        return None
    return DiskCache(config) if config.scope == "machine" else SharedCache(config)


class CacheActor:
    """Runs on one machine of the cluster: the file, and who is making what.

    Args:
        path: the file on that machine.
        max_bytes: see `CacheConfig`.
        lease: see `LEASE`.
    """

    def __init__(self, path: str, max_bytes: int, lease: float) -> None:
        self._lease = lease
        self._cache = DiskCache(CacheConfig(path, max_bytes))
        self._claims: dict[str, tuple[str, float]] = {}
        self._failures: dict[str, tuple[str, str, float]] = {}
        self._ended: dict[str, asyncio.Event] = {}

    async def look(self, key: str, who: str, waited: float) -> tuple[str, Any]:
        """What `who` has to do about `key`: take the text, raise the fault, make it, or ask again.

        Args:
            key: of the text.
            who: names the asker.
            waited: seconds since it first asked; a failure older than that is not its own.
        """
        deadline = time.monotonic() + _PATIENCE
        since = time.monotonic() - waited
        while True:
            found = self._cache.get(key)
            if found is not None:
                return _FOUND, found
            kind, detail, at = self._failures.get(key, ("", "", -1.0))
            if kind and at >= since and waited:
                return _FAILED, (kind, detail)
            now = time.monotonic()
            if self._claims.get(key, ("", 0.0))[1] < now:
                self._claims[key] = (who, now + self._lease)
                return _CLAIMED, None
            if now >= deadline:
                return _WAIT, None
            ended = self._ended.setdefault(key, asyncio.Event())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), min(deadline, self._claims[key][1]) - now + 0.01)
            waited = waited or 1e-9  # from here on it has waited for somebody

    async def renew(self, key: str, who: str) -> None:
        """`who` is still making `key`."""
        if self._claims.get(key, ("",))[0] == who:
            self._claims[key] = (who, time.monotonic() + self._lease)

    async def end(self, key: str, who: str, text: str | None, failure: tuple[str, str] | None) -> str | None:
        """`who` has made `key`, or failed; the text that it has now."""
        now = time.monotonic()
        self._failures = {name: one for name, one in self._failures.items() if one[2] > now - 3600}
        if failure is not None:
            self._failures[key] = (*failure, now)
        kept = self._cache.put(key, text) if text is not None else None
        if self._claims.get(key, ("",))[0] == who:
            del self._claims[key]
        if (ended := self._ended.pop(key, None)) is not None:
            ended.set()
        return kept


class SharedCache:
    """A `Cache` behind the cluster's `CacheActor`, which the first who needs it starts.

    Args:
        config: all workers with the same path share one actor.
        lease: see `LEASE`.

    Raises:
        ConfigError: this process is not connected to Ray.
    """

    def __init__(self, config: CacheConfig, lease: float = LEASE) -> None:
        if not ray.is_initialized():
            raise ConfigError("cache.scope=cluster needs Ray, and this process has none; use cache.scope=machine")
        self._path = config.path
        self._lease = lease
        self._actor: ActorHandle[Any] = (
            ray.remote(CacheActor)
            .options(
                name=f"cache:{config.path}",
                namespace="slca",  # jobs have namespaces of their own, and would leave an actor behind each
                get_if_exists=True,
                lifetime="detached",
                num_cpus=0,
                max_concurrency=10_000,
                max_restarts=-1,
                max_task_retries=3,
            )
            .remote(config.path, config.max_bytes, lease)
        )

    async def get_or_make(
        self, key: str, make: Callable[[], Awaitable[str]], fault: type[InfrastructureFault]
    ) -> tuple[str, bool]:
        """See `Cache.get_or_make`; the actor's own failure is of kind ``"cache_failed"``."""
        who = uuid.uuid4().hex
        started = time.monotonic()
        waited = 0.0
        try:
            while True:
                state, value = await self._actor.look.remote(key, who, waited)
                if state == _FOUND:
                    return value, True
                if state == _FAILED:
                    raise fault(*value)
                if state == _CLAIMED:
                    return await self._made(key, who, make), False
                waited = time.monotonic() - started
        except RayError as error:
            raise fault("cache_failed", f"{self._path}: {str(error)[:500]}") from error

    async def _made(self, key: str, who: str, make: Callable[[], Awaitable[str]]) -> str:
        text, failure = None, None
        try:
            async with self._renewed(key, who):
                text = await make()
        except InfrastructureFault as error:
            failure = (error.kind, error.detail)
            raise
        finally:
            kept = await self._actor.end.remote(key, who, text, failure)
        return kept or text

    @contextlib.asynccontextmanager
    async def _renewed(self, key: str, who: str) -> AsyncIterator[None]:
        async def renew() -> None:
            while True:
                await asyncio.sleep(self._lease / 3)
                await self._actor.renew.remote(key, who)

        task = asyncio.create_task(renew())
        try:
            yield
        finally:
            task.cancel()
