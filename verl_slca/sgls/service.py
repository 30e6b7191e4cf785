"""The simulator over HTTP: `slca simulate --tools tools.json --port 8017`.

    GET    /tools                    the declarations
    POST   /episodes                 {"world": "w1"}: a fresh episode; equal worlds answer equally
    POST   /episodes/{id}/calls      {"name": ..., "arguments": {...}}: one call
    POST   /episodes/{id}/reset      start over
    DELETE /episodes/{id}
    GET    /metrics                  for Prometheus
    GET    /openapi.json             the interface

An invalid call is answered with 200 and ``is_error``, as the tool would; 502 says that the simulator itself failed.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field

from verl_slca.errors import InfrastructureFault
from verl_slca.sgls.guard import Asgi, Guard
from verl_slca.sgls.prometheus import exposition
from verl_slca.sgls.simulator import Episode, Simulator
from verl_slca.trajectory import ToolCall

MAX_EPISODES = 1000
MAX_CALLS = 1000
"""Calls in one episode; every call can look back on those before it."""
IDLE_SECONDS = 3600.0
"""An episode that nobody used for so long makes room for a new one."""

_MAX_PROBLEMS = 10


class NewEpisode(BaseModel):
    """What an episode starts from."""

    model_config = ConfigDict(extra="forbid")
    world: str = Field("w", max_length=256, description="Names the world; equal worlds answer equally.")


class OpenEpisode(BaseModel):
    """An episode that can be called."""

    episode: str
    world: str


class Call(BaseModel):
    """One tool call."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=1024)
    arguments: dict[str, Any] = Field(default_factory=dict)


class Answer(BaseModel):
    """What the simulated tool answered: text, to be treated as data."""

    content: str
    is_error: bool


@dataclass
class _Running:
    episode: Episode
    used: float
    calls: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Episodes:
    """The open episodes of one server, at most `MAX_EPISODES`.

    Args:
        simulator: makes them.
        tools: offered in each.

    Raises:
        DataError: the tools cannot be used together.
    """

    def __init__(self, simulator: Simulator, tools: Sequence[Mapping[str, Any]]) -> None:
        self.simulator = simulator
        self.tools = list(tools)
        self._running: dict[str, _Running] = {}
        simulator.episode(tools, "w")

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, name: str) -> bool:
        return name in self._running

    def open(self, name: str, world: str) -> None:
        """Start an episode, or start it over. Raises `OverflowError` when there are too many in use."""
        now = time.monotonic()
        if name not in self._running and len(self._running) >= MAX_EPISODES:
            idle = [key for key, one in self._running.items() if now - one.used > IDLE_SECONDS]
            if not idle:
                raise OverflowError(f"{MAX_EPISODES} episodes are open; delete one")
            for key in idle:
                del self._running[key]
        self._running[name] = _Running(self.simulator.episode(self.tools, world), now)

    def world(self, name: str) -> str:
        """The world of an episode. Raises `KeyError`."""
        return self._running[name].episode.world

    def close(self, name: str) -> None:
        """Forget an episode. Raises `KeyError`."""
        del self._running[name]

    async def call(self, name: str, call: ToolCall) -> Answer:
        """One call in an episode, after those before it.

        Raises:
            KeyError: no such episode.
            OverflowError: it has had `MAX_CALLS`.
            InfrastructureFault: the simulator failed.
        """
        running = self._running[name]
        async with running.turn:
            if running.calls >= MAX_CALLS:
                raise OverflowError(f"the episode has had {MAX_CALLS} calls; reset it")
            running.calls += 1
            running.used = time.monotonic()
            (result,) = await running.episode.respond([call])
        return Answer(content=result.content, is_error=result.is_error)


def create_app(simulator: Simulator, tools: Sequence[Mapping[str, Any]], token: str = "") -> Asgi:
    """The HTTP service, guarded.

    Args:
        simulator: answers.
        tools: declarations offered in every episode.
        token: what clients must send, "" for none (then loopback only, see `Guard`).

    Raises:
        DataError: the tools cannot be used together.
    """
    episodes = Episodes(simulator, tools)
    metrics = exposition(simulator.figures, lambda: len(episodes))
    app = FastAPI(title="SGLS", description=__doc__, docs_url=None, redoc_url=None)  # both would load scripts from afar

    @app.exception_handler(RequestValidationError)
    async def refused(request: Request, error: RequestValidationError) -> Response:
        # FastAPI's own repeats the input, which can hold what JSON cannot: NaN, half of a surrogate pair.
        problems = [{"loc": one["loc"], "msg": str(one["msg"])[:300]} for one in error.errors()[:_MAX_PROBLEMS]]
        return Response(json.dumps({"detail": problems}), 422, media_type="application/json")

    def found(episode: str) -> str:
        if episode not in episodes:
            raise HTTPException(404, "no such episode; it may have expired")
        return episode

    @app.get("/tools")
    async def offered() -> list[dict[str, Any]]:
        """The tools' declarations, as they were given."""
        return [dict(tool) for tool in tools]

    @app.post("/episodes", status_code=201)
    async def start(new: NewEpisode) -> OpenEpisode:
        """Open a fresh episode."""
        name = uuid.uuid4().hex
        _open(episodes, name, new.world)
        return OpenEpisode(episode=name, world=new.world)

    @app.post("/episodes/{episode}/calls", responses={502: {"description": "The simulator failed, not the call."}})
    async def call(episode: str, call: Call) -> Answer:
        """Call a tool."""
        try:
            return await episodes.call(found(episode), ToolCall(call.name, call.arguments))
        except OverflowError as error:
            raise HTTPException(429, str(error)) from error
        except InfrastructureFault as fault:
            raise HTTPException(502, {"kind": fault.kind, "detail": fault.detail}) from fault

    @app.post("/episodes/{episode}/reset", status_code=204)
    async def reset(episode: str) -> None:
        """Start the episode over: nothing has been called."""
        _open(episodes, episode, episodes.world(found(episode)))

    @app.delete("/episodes/{episode}", status_code=204)
    async def delete(episode: str) -> None:
        """Forget the episode."""
        episodes.close(found(episode))

    @app.get("/metrics", response_class=Response)
    async def figures() -> Response:
        """Calls, faults, cache hits, tokens and latency, in Prometheus' text format."""
        return Response(metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return Guard(app, token)


def _open(episodes: Episodes, name: str, world: str) -> None:
    try:
        episodes.open(name, world)
    except OverflowError as error:
        raise HTTPException(429, str(error)) from error
