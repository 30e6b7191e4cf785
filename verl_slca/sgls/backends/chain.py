"""The backends that a config names, as one: each is asked only when those before it have no answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from verl_slca.disk_cache import Cache, DiskCache
from verl_slca.errors import InfrastructureFault
from verl_slca.sgls.backends import Backend, BackendRequest, BackendResponse
from verl_slca.sgls.backends.coherence import CoherentBackend
from verl_slca.sgls.backends.llm import LlmBackend
from verl_slca.sgls.backends.replay import ReplayBackend
from verl_slca.sgls.backends.rules import RulesBackend
from verl_slca.sgls.cache import CachedBackend
from verl_slca.sgls.config import SglsConfig
from verl_slca.sgls.recording import RecordingBackend, read_recording

_BACKENDS: dict[str, Callable[[SglsConfig, Cache | None], Backend]] = {
    "rules": lambda config, cache: RulesBackend(),
    "llm": lambda config, cache: _llm(config, cache),
    "replay": lambda config, cache: ReplayBackend(read_recording(config.replay)),
}
_log = logging.getLogger(__name__)


def make_backend(config: SglsConfig, cache: Cache | None = None) -> Backend:
    """The backend that answers as `config` says.

    Args:
        config: the settings.
        cache: keeps the model's answers in place of the file that `config.cache` names.

    Raises:
        ConfigError: a file that the settings name cannot be used.
        DataError: a recording cannot be read.
    """
    backends = [_BACKENDS[name](config, cache) for name in config.backends]
    backend = backends[0] if len(backends) == 1 else Chain(backends)
    return RecordingBackend(backend, config.record) if config.record else backend


def _llm(config: SglsConfig, cache: Cache | None) -> Backend:
    backend = LlmBackend(config.llm)
    if cache is None and config.cache is not None:
        cache = DiskCache(config.cache)
    return CoherentBackend(CachedBackend(backend, cache, backend.identity) if cache is not None else backend)


class Chain:
    """A `Backend` that asks several in order; the answer's `source` says whose it is.

    Args:
        backends: the first is asked first.
    """

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = tuple(backends)

    async def respond(self, request: BackendRequest) -> BackendResponse:
        """The first answer that one of them gives. Raises the last one's fault when none does."""
        passed: list[str] = []
        for backend in self._backends[:-1]:
            try:
                response = await backend.respond(request)
            except InfrastructureFault as fault:
                _log.debug("%s; the next backend is asked", fault)
                passed.append(fault.kind)
            else:
                return replace(response, passed=tuple(passed))
        return replace(await self._backends[-1].respond(request), passed=tuple(passed))
