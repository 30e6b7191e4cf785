"""The backends that a config names, as one: each is asked only when those before it have no answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl_slca.errors import InfrastructureFault
from verl_slca.sgls.backends import Backend, BackendRequest, BackendResponse
from verl_slca.sgls.backends.rules import RulesBackend
from verl_slca.sgls.config import SglsConfig

_BACKENDS: dict[str, Callable[[SglsConfig], Backend]] = {
    "rules": lambda config: RulesBackend(),
}


def make_backend(config: SglsConfig) -> Backend:
    """The backend that answers as `config` says.

    Raises:
        ConfigError: a file that the settings name cannot be written.
        DataError: a recording cannot be read.
    """
    backends = [_BACKENDS[name](config) for name in config.backends]
    return backends[0] if len(backends) == 1 else Chain(backends)


class Chain:
    """A `Backend` that asks several in order; the answer's `source` says whose it is.

    Args:
        backends: the first is asked first.
    """

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = tuple(backends)

    async def respond(self, request: BackendRequest) -> BackendResponse:
        """The first answer that one of them gives. Raises the last one's fault when none does."""
        *others, last = self._backends
        for backend in others:
            try:
                return await backend.respond(request)
            except InfrastructureFault:
                continue
        return await last.respond(request)
