"""What a simulator has done, counted per tool."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

UNKNOWN = "(unknown)"
"""Where calls of tools that do not exist are counted, so that invented names cannot fill the memory."""


@dataclass(slots=True)
class ToolFigures:
    """Counts of one tool since the simulator was made.

    Attributes:
        calls: all calls; the sum of the four below.
        valid: answered by the backend.
        unknown: no such tool.
        invalid: refused with argument errors.
        faults: ended in an `InfrastructureFault`.
        seconds: wall time spent on all of them.
    """

    calls: int = 0
    valid: int = 0
    unknown: int = 0
    invalid: int = 0
    faults: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Figures:
    """Counts of all tools."""

    tools: dict[str, ToolFigures] = field(default_factory=dict)

    def of(self, name: str) -> ToolFigures:
        """The figures of one tool, to be counted up."""
        return self.tools.setdefault(name, ToolFigures())

    def total(self) -> ToolFigures:
        """The sum over all tools."""
        total = ToolFigures()
        for figures in self.tools.values():
            for name, value in asdict(figures).items():
                setattr(total, name, getattr(total, name) + value)
        return total

    def snapshot(self) -> dict[str, dict[str, float]]:
        """The counts as of now, by tool name: plain data, detached from further counting."""
        return {name: asdict(figures) for name, figures in sorted(self.tools.items())}
