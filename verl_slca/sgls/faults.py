"""API errors injected on purpose, at set rates: what a policy that will meet real APIs has to cope with.

An injected error is a response, which the policy sees and can act on (wait, call again, give up). It is counted
apart from real faults, which end the rollout. Which call gets which error follows from seed, world, call, and how
often the episode has made this call before. So every rollout of a group meets the same errors, and a call that is
repeated may succeed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from verl_slca.seeds import derived_seed
from verl_slca.sgls.backends import Backend, BackendRequest, BackendResponse
from verl_slca.sgls.backends.infer import output_of
from verl_slca.sgls.schema import CompiledSchema
from verl_slca.sgls.validation import SchemaLimitError, canonical_json

_MAX_RESHAPED = 20
"""Fields of a response that are tried for a change its schema does not allow."""


@dataclass(frozen=True, slots=True)
class InjectionConfig:
    """Share of valid calls, in [0, 1], that get each kind of error; the sum is at most 1.

    Attributes:
        timeout: no answer in time; the call has no effect.
        rate_limit: HTTP 429; no effect.
        server_error: HTTP 500, 502 or 503; no effect.
        empty: the answer is lost, though the call has its effect.
        truncated: the answer breaks off.
        wrong_schema: the answer has another shape than the tool promises.
    """

    timeout: float = 0.0
    rate_limit: float = 0.0
    server_error: float = 0.0
    empty: float = 0.0
    truncated: float = 0.0
    wrong_schema: float = 0.0

    def __post_init__(self) -> None:
        for kind, rate in self.rates.items():
            if not 0.0 <= rate <= 1.0:
                raise ValueError(f"{kind} must be a share in [0, 1], got {rate}")
        if sum(self.rates.values()) > 1.0 + 1e-9:
            raise ValueError(f"the rates must add up to at most 1, got {sum(self.rates.values()):g}")

    @property
    def rates(self) -> dict[str, float]:
        """Share of calls by kind."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def __bool__(self) -> bool:
        return any(self.rates.values())


class FaultyBackend:
    """A `Backend` in front of another one that spoils some of its answers, as `config` says.

    It belongs in front of a cache, which would otherwise keep the errors.
    """

    def __init__(self, backend: Backend, config: InjectionConfig) -> None:
        self._backend = backend
        self._config = config

    async def respond(self, request: BackendRequest) -> BackendResponse:
        """The backend's answer, or an injected error in its place. Raises `SimulatorFault` as the backend does."""
        kind, rng = injected_kind(request, self._config)
        if kind in _REFUSALS:
            return BackendResponse(_REFUSALS[kind](rng), is_error=True, injected=kind)
        response = await self._backend.respond(request)
        if not kind:
            return response
        return replace(response, content=_SPOILED[kind](response.content, request, rng), injected=kind)


def injected_kind(request: BackendRequest, config: InjectionConfig) -> tuple[str, random.Random]:
    """(the kind of error that a call gets, "" for none; the source of its details)."""
    called = canonical_json(request.arguments)
    before = sum(
        call.name == request.tool.name and canonical_json(call.arguments) == called for call, _ in request.history
    )
    rng = random.Random(derived_seed("injected", request.seed, request.world, request.tool.digest, called, before))
    left = rng.random()
    for kind, rate in config.rates.items():
        if left < rate:
            return kind, rng
        left -= rate
    return "", rng


def _timeout(rng: random.Random) -> str:
    return f"Error: 504 Gateway Timeout: no response from the service within {rng.choice((10, 30, 60))} seconds."


def _rate_limit(rng: random.Random) -> str:
    return f"Error: 429 Too Many Requests: rate limit exceeded, retry after {rng.choice((1, 5, 10, 30))} seconds."


def _server_error(rng: random.Random) -> str:
    status = rng.choice(("500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable"))
    return f"Error: {status}: the service could not complete the request."


def _empty(content: str, request: BackendRequest, rng: random.Random) -> str:
    return ""


def _truncated(content: str, request: BackendRequest, rng: random.Random) -> str:
    return content[: int(len(content) * rng.uniform(0.3, 0.8))]


def _wrong_schema(content: str, request: BackendRequest, rng: random.Random) -> str:
    """`content` in a shape that the tool's output schema, declared or inferred, does not allow."""
    schema = output_of(request.tool)
    try:
        value = json.loads(content)
    except ValueError:
        value = content
    for changed in _reshaped(value, rng):
        if _refused(schema, changed):
            return json.dumps(changed, ensure_ascii=False)
    return json.dumps({"data": value, "status": "ok"}, ensure_ascii=False)  # the schema allows anything


def _reshaped(value: Any, rng: random.Random) -> Iterator[Any]:
    if isinstance(value, dict):
        keys = rng.sample(list(value), min(len(value), _MAX_RESHAPED))
        yield from ({**value, key: None} for key in keys)
        yield from ({**value, key: {"value": value[key]}} for key in keys)
        yield from ({name: child for name, child in value.items() if name != key} for key in keys)
    yield {"data": value}
    yield [value]
    yield None


def _refused(schema: CompiledSchema, value: Any) -> bool:
    try:
        return bool(schema.errors(value))
    except SchemaLimitError:
        return False


_REFUSALS: dict[str, Callable[[random.Random], str]] = {
    "timeout": _timeout,
    "rate_limit": _rate_limit,
    "server_error": _server_error,
}
_SPOILED: dict[str, Callable[[str, BackendRequest, random.Random], str]] = {
    "empty": _empty,
    "truncated": _truncated,
    "wrong_schema": _wrong_schema,
}
