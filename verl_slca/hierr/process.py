"""The process reward of HierR: how right the tool calls of a rollout are, in [0, 1].

S_process = 0.10 format + 0.25 name + 0.15 key + 0.20 value + 0.30 parallel   (arXiv:2609.29050, HierR)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from verl_slca.hierr.matching import matched, name_f1
from verl_slca.parsing import parse_turn
from verl_slca.rows import Gold
from verl_slca.trajectory import ToolCall, Trajectory

Preset = Literal["default", "uniform", "value_heavy", "name_heavy", "without_parallel", "none"]


@dataclass(frozen=True, slots=True)
class ProcessWeights:
    """Weights of the five parts, each >= 0."""

    format: float = 0.10
    name: float = 0.25
    key: float = 0.15
    value: float = 0.20
    parallel: float = 0.30

    def __post_init__(self) -> None:
        for part in ("format", "name", "key", "value", "parallel"):
            if not 0.0 <= getattr(self, part) < float("inf"):
                raise ValueError(f"weight of {part} must be a finite number >= 0, got {getattr(self, part)}")


PRESETS: dict[str, ProcessWeights] = {
    "default": ProcessWeights(),
    "uniform": ProcessWeights(0.20, 0.20, 0.20, 0.20, 0.20),
    "value_heavy": ProcessWeights(0.05, 0.20, 0.20, 0.35, 0.20),
    "name_heavy": ProcessWeights(0.05, 0.40, 0.15, 0.15, 0.25),
    "without_parallel": ProcessWeights(0.15, 0.30, 0.25, 0.30, 0.00),
    "none": ProcessWeights(0.0, 0.0, 0.0, 0.0, 0.0),
}
"""The paper's weight ablation; ``"none"`` is its "w/o HierR"."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """What a rollout tried to call.

    Attributes:
        opened: number of opening tags.
        closed: number of closing tags.
        valid_blocks: well-formed blocks all of whose tools are offered.
        calls: the calls of the valid blocks, in order.
        well_formed: number of well-formed calls, whether or not their tool is offered.
        first_step: number of calls in the first step; None when an invalid block leaves it unknown; 0 for no
            attempt.
    """

    opened: int
    closed: int
    valid_blocks: int
    calls: tuple[ToolCall, ...]
    well_formed: int
    first_step: int | None

    @property
    def tags(self) -> int:
        """The larger of the two tag counts; 0 means that no call was attempted."""
        return max(self.opened, self.closed)


@dataclass(frozen=True, slots=True)
class ProcessScore:
    """The five parts of S_process, each in [0, 1]."""

    format: float
    name: float
    key: float
    value: float
    parallel: float

    def total(self, weights: ProcessWeights) -> float:
        """The weighted sum.

        Example:
            >>> round(ProcessScore(1, 1, 1, 0.5, 1).total(ProcessWeights()), 9)
            0.9
        """
        return (
            weights.format * self.format
            + weights.name * self.name
            + weights.key * self.key
            + weights.value * self.value
            + weights.parallel * self.parallel
        )


def attempts(trajectory: Trajectory, allowed_tools: Sequence[str]) -> Attempts:
    """What the policy itself tried to call, turn by turn; a step is a turn.

    Only policy text is read, so a call quoted in a tool response is none (H9), and adjacent blocks of one turn
    are parallel calls (H8). An invalid block in the first step leaves its size unknown (H6).
    """
    allowed = frozenset(allowed_tools)
    opened = closed = valid = well_formed = 0
    calls: list[ToolCall] = []
    first_step: int | None = 0
    for turn in trajectory.turns:
        parsed = parse_turn(turn.text)
        good = [b for b in parsed.blocks if b.error is None and all(call.name in allowed for call in b.calls)]
        if parsed.attempted and not opened and not closed:
            first_step = sum(len(b.calls) for b in good) if len(good) == len(parsed.blocks) else None
        opened += parsed.opened
        closed += parsed.closed
        valid += len(good)
        well_formed += len(parsed.calls)
        calls.extend(call for b in good for call in b.calls)
    return Attempts(opened, closed, valid, tuple(calls), well_formed, first_step)


def process_score(tried: Attempts, gold: Gold) -> ProcessScore:
    """The five parts of S_process for calls that were tried against the gold calls.

    - format: valid blocks / max(opening tags, closing tags); without any tag 1 when no call was wanted (the
      release gives 0, H1), else 0.
    - name: multiset F1 of tool names.
    - key, value: means over the gold calls that have arguments, under the best one-to-one assignment; 0 for
      a gold call that was not made. When no gold call has arguments they are means over all gold calls, so
      they are not free (H4). Gold of names only earns 1 and 1 for each name that was called.
    - parallel: 1 when the first step has as many calls as the first gold step. A flat gold list does not say
      how its calls were grouped: any first step from one call up to all of them fits (H7).

    When no call was wanted, any attempt earns format alone (H2).
    """
    shape = tried.valid_blocks / tried.tags if tried.tags else float(not gold.calls)
    if not gold.calls:
        rest = float(not tried.tags)
        return ProcessScore(shape, rest, rest, rest, rest)
    measured = [call for call in gold.calls if call.arguments] or list(gold.calls)
    pairs = [pair or (0.0, 0.0) for pair in matched(measured, tried.calls)]
    most = len(gold.steps[0])
    least = most if gold.stepped else 1
    return ProcessScore(
        format=shape,
        name=name_f1([call.name for call in tried.calls], [call.name for call in gold.calls]),
        key=sum(key for key, _ in pairs) / len(pairs),
        value=sum(value for _, value in pairs) / len(pairs),
        parallel=float(tried.first_step is not None and least <= tried.first_step <= most),
    )


def success_at(process: float, threshold: float = 0.9) -> bool:
    """True when `process` reaches `threshold`, up to the rounding of floats.

    Half of the values wrong gives 0.8999999999999999, which is the 0.9 that was meant.

    Example:
        >>> success_at(0.1 + 0.25 + 0.15 + 0.2 * 0.5 + 0.3), success_at(0.899)
        (True, False)
    """
    return process >= threshold - 1e-9
