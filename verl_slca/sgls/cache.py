"""A backend in front of which stands a cache: the same call in the same world and state is answered once.

So all rollouts of a group see one world, also when the backend is a model that never says the same thing twice.
Made for `llm`; `rules` answers faster than any cache.
"""

from __future__ import annotations

import hashlib
import json

from verl_slca.disk_cache import Cache
from verl_slca.errors import SimulatorFault
from verl_slca.sgls.backends import Backend, BackendRequest, BackendResponse
from verl_slca.sgls.validation import canonical_json


def request_key(request: BackendRequest, identity: str) -> str:
    """What names a request: equal exactly when the answers have to be equal.

    Args:
        request: the call; the same arguments in another order, or 2.0 for 2, are the same.
        identity: of the backend, its model and prompt included.
    """
    parts = [request.tool.digest, request.arguments, request.state_digest, request.world, request.seed, identity]
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


class CachedBackend:
    """A `Backend` that asks another one only what it has not answered yet.

    Args:
        backend: answers what is not in the cache; its faults are not kept.
        cache: keeps the answers, also those in which the API refuses a call.
        identity: names the backend with everything its answers depend on beside the request.
    """

    def __init__(self, backend: Backend, cache: Cache, identity: str) -> None:
        self._backend = backend
        self._cache = cache
        self._identity = identity

    async def respond(self, request: BackendRequest) -> BackendResponse:
        """The first answer that this request ever got. Raises `SimulatorFault` as the backend does."""
        tokens = 0

        async def make() -> str:
            nonlocal tokens
            response = await self._backend.respond(request)
            tokens = response.tokens
            return json.dumps([response.content, response.is_error, response.source])

        text, known = await self._cache.get_or_make(request_key(request, self._identity), make, SimulatorFault)
        content, is_error, source = json.loads(text)
        return BackendResponse(content, is_error, source, tokens, cached=known)
