"""One rollout, whoever generates the tokens: the policy acts, SGLS answers, until an answer or a limit.

The verl agent loop and the harness both run this function, so training and evaluation cannot drift apart.
They differ only in their `Policy`: token ids from a verl rollout server, or messages over HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from verl_slca.cutting import cut_middle
from verl_slca.errors import InfrastructureFault, SimulatorFault, as_fault
from verl_slca.parsing import ParsedTurn, parse_turn
from verl_slca.trajectory import Stop, ToolCall, ToolResult, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Action:
    """One turn as the policy produced it.

    Attributes:
        text: decoded text, end-of-turn token removed.
        finished: False when the token limit cut it off.
        span: half-open token range within the response, (0, 0) where unknown.
    """

    text: str
    finished: bool
    span: tuple[int, int] = (0, 0)


class Policy(Protocol):
    """One conversation with the model under training or evaluation."""

    async def act(self) -> Action:
        """The next turn. Raises `InfrastructureFault` when the server, not the model, failed."""

    async def observe(self, results: Sequence[ToolResult]) -> bool:
        """Append the environment's answers; False when no room is left to act again."""


class World(Protocol):
    """One episode of a simulator: tools with whatever state the calls so far have left."""

    async def respond(self, calls: Sequence[ToolCall]) -> Sequence[ToolResult]:
        """One result per call, in order. Raises `InfrastructureFault` when the simulator failed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where an episode ends; defaults are the paper's (arXiv:2609.29050, training details).

    Attributes:
        max_turns: policy turns per episode.
        max_parallel_calls: calls answered per turn; those beyond it get one error.
        max_tool_response_chars: longest tool response, in characters; longer ones are cut.
        truncate_side: which part of a long response is dropped.
    """

    max_turns: int = 10
    max_parallel_calls: int = 20
    max_tool_response_chars: int = 2048
    truncate_side: Literal["left", "middle", "right"] = "middle"

    def __post_init__(self) -> None:
        for name in ("max_turns", "max_parallel_calls", "max_tool_response_chars"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


async def run_episode(policy: Policy, world: World, limits: Limits) -> Trajectory:
    """The finished rollout; an infrastructure fault ends it with ``stop="fault"`` and the fault's kind.

    A turn that attempts a call is a tool turn, whether or not the call parses: a malformed one is answered
    with an error the policy can learn from. Once `max_turns` is reached a pending call is not executed.
    """
    turns: list[Turn] = []
    stop: Stop = "turn_limit"
    while len(turns) < limits.max_turns:
        try:
            action = await policy.act()
            parsed = parse_turn(action.text)
            turns.append(Turn(action.text, parsed.calls, (), action.span))
            if not action.finished:
                stop = "length"
                break
            if not parsed.attempted:
                stop = "answer"
                break
            if len(turns) == limits.max_turns:
                break
            results = await _answer(parsed, world, limits)
            turns[-1] = Turn(action.text, parsed.calls, results, action.span)
            if not await policy.observe(results):
                stop = "length"
                break
        except InfrastructureFault as fault:
            return Trajectory(tuple(turns), "fault", as_fault(fault, "rollout").kind)
    return Trajectory(tuple(turns), stop)


async def _answer(parsed: ParsedTurn, world: World, limits: Limits) -> tuple[ToolResult, ...]:
    answered = parsed.calls[: limits.max_parallel_calls]
    answers = list(await world.respond(answered)) if answered else []
    if len(answers) != len(answered):
        raise SimulatorFault("simulator_miscount", f"{len(answers)} results for {len(answered)} calls")
    responses = iter(answers)
    results: list[ToolResult] = []
    pending = len(answered)
    for block in parsed.blocks:
        if block.error is not None:
            results.append(ToolResult("", block.error, is_error=True))
        for _ in block.calls[:pending]:
            results.append(next(responses))
        pending -= min(pending, len(block.calls))
    dropped = len(parsed.calls) - len(answered)
    if dropped:
        limit = limits.max_parallel_calls
        results.append(ToolResult("", f"Error: {dropped} calls not executed, at most {limit} per turn.", True))
    return tuple(
        ToolResult(r.name, truncated(r.content, limits.max_tool_response_chars, limits.truncate_side), r.is_error)
        for r in results
    )


def truncated(text: str, limit: int, side: str) -> str:
    """`text` with at most `limit` characters kept, the cut marked.

    Example:
        >>> truncated("abcdefgh", 4, "middle")
        'ab...(truncated)...gh'
        >>> truncated("abcd", 4, "middle")
        'abcd'
    """
    if len(text) <= limit:
        return text
    if side == "left":
        return "(truncated)..." + text[-limit:]
    if side == "right":
        return text[:limit] + "...(truncated)"
    return cut_middle(text, limit, "...(truncated)...")
