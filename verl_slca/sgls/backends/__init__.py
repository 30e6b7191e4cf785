"""What answers a valid call: one protocol, so that rules, an LLM and a recording are interchangeable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from verl_slca.sgls.schema import CompiledTool
from verl_slca.sgls.state import State
from verl_slca.trajectory import ToolCall, ToolResult


@dataclass(frozen=True, slots=True)
class BackendRequest:
    """One valid call, with all that an answer may depend on.

    Attributes:
        tool: the called tool.
        arguments: valid under the tool's schema (unless validation is off).
        world: names the world; the same for every rollout of a group.
        seed: the simulator's seed.
        history: calls and results of this episode so far, oldest first.
        state: what the calls of this episode have left behind.
    """

    tool: CompiledTool
    arguments: dict[str, Any]
    world: str
    seed: int
    history: tuple[tuple[ToolCall, ToolResult], ...] = ()
    state: State = State()  # noqa: RUF009 - frozen

    @property
    def state_digest(self) -> str:
        """Equal exactly when the world is in the same state, "" in its first."""
        return self.state.digest


@dataclass(frozen=True, slots=True)
class BackendResponse:
    """What the simulated API answered.

    Attributes:
        content: the response text.
        is_error: the API refused a well-formed call, e.g. a division by zero. Never a failure of ours.
        source: the backend that answered, e.g. ``"llm"``; for the figures.
        tokens: tokens that a model read and wrote for it, now; 0 when it came out of a cache.
        cached: it came out of a cache.
        injected: kind of the API error that was injected (`sgls.faults`), "" when none was.
        passed: kinds of the faults of the backends that were asked before `source` and had no answer.
    """

    content: str
    is_error: bool = False
    source: str = ""
    tokens: int = 0
    cached: bool = False
    injected: str = ""
    passed: tuple[str, ...] = ()


class Backend(Protocol):
    """Plays the API behind every tool."""

    async def respond(self, request: BackendRequest) -> BackendResponse:
        """The API's answer. Raises `SimulatorFault` when the backend, not the call, is at fault."""
