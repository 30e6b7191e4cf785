"""A finished rollout: its policy turns, what the environment answered, and which tokens are whose.

Everything downstream (segments, HierR, the harness, files on disk) reads a `Trajectory`; only the agent
loop and `parsing.trajectory_from_text` make one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Stop = Literal["answer", "length", "turn_limit", "fault"]
"""Why a rollout ended: the policy answered; it ran out of tokens; its last allowed turn was a tool turn;
or something other than the policy failed."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One structured call: a tool name and a JSON object of arguments."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the environment answered to one call.

    Attributes:
        name: tool the answer is for ("" when the call could not even be parsed).
        content: the text the policy sees.
        is_error: True when the policy itself got the call wrong (unknown tool, invalid arguments,
            malformed block) or the API answered with an error. Never a failure of ours: that raises
            `InfrastructureFault`.
    """

    name: str
    content: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One uninterrupted stretch of policy output and the environment's reply to it.

    Attributes:
        text: what the policy wrote, end-of-turn token removed, tool calls included as
            ``<tool_call>{...}</tool_call>`` blocks.
        calls: the well-formed calls in `text`, in order (the tool may be unknown or the arguments invalid).
        results: the environment's answers; empty for the final answer and for a turn that was cut off.
        span: half-open token range [start, end) of the turn within the response; (0, 0) where tokens are
            not known (text from an HTTP endpoint).
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    span: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One rollout.

    Attributes:
        turns: policy turns in order.
        stop: why it ended. Only ``"answer"`` has a summary: the last turn.
        fault: kind of the `InfrastructureFault` that ended it, else None.
    """

    turns: tuple[Turn, ...]
    stop: Stop
    fault: str | None = None

    @property
    def tool_turns(self) -> tuple[Turn, ...]:
        """All turns of the tool segment, in order."""
        return self.turns[:-1] if self.answer_turn else self.turns

    @property
    def answer_turn(self) -> Turn | None:
        """The summary segment's turn, or None when the rollout never answered."""
        return self.turns[-1] if self.stop == "answer" and self.turns else None

    @property
    def answer(self) -> str:
        """Text of the final answer, "" when there is none."""
        return self.answer_turn.text if self.answer_turn else ""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Every well-formed call, in order."""
        return tuple(call for turn in self.turns for call in turn.calls)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """Every environment answer, in order."""
        return tuple(result for turn in self.turns for result in turn.results)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form; `from_dict` inverts it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trajectory:
        """The trajectory that `to_dict` wrote."""
        turns = tuple(
            Turn(
                text=turn["text"],
                calls=tuple(ToolCall(**call) for call in turn["calls"]),
                results=tuple(ToolResult(**result) for result in turn["results"]),
                span=(turn["span"][0], turn["span"][1]),
            )
            for turn in data["turns"]
        )
        return cls(turns=turns, stop=data["stop"], fault=data["fault"])
