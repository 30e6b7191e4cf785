"""Summary judges: how well the final reply tells what the tools said, in [0, 1].

`rules` (`hierr.rules_judge`) is embedded and deterministic; `llm` (`hierr.llm_judge`) asks a frozen model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

RATINGS: dict[str, float] = {"very poor": 0.0, "poor": 0.25, "acceptable": 0.5, "good": 0.75, "excellent": 1.0}
"""The paper's five points, 1..5 mapped to (r - 1) / 4."""


class SummaryJudge(Protocol):
    """Rates a final reply. It sees neither the calls nor the gold."""

    async def rate(self, question: str, responses: Sequence[str], reply: str) -> float:
        """The rating in [0, 1].

        Args:
            question: the user's request, earlier turns of the conversation included.
            responses: what the tools answered, in order; empty when no tool was called.
            reply: the text shown to the user.

        Raises:
            JudgeFault: no verdict could be had. Never a low rating instead.
        """
