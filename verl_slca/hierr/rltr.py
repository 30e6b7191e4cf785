"""RLTR's planner reward from completeness votes, repeats and errors (baseline, method section 5).

R = R_comp + R_repeat + R_error      R_repeat = -0.1 per repeat, R_error = -0.2 per invalid block
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from verl_slca.errors import JudgeFault
from verl_slca.hierr.process import Attempts
from verl_slca.rows import Gold

REPEAT = -0.1
ERROR = -0.2
MALFORMED = -1.0
NO_CALL = -0.5

_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_UNCLOSED = re.compile(r"<think(?:ing)?>.*\Z", re.DOTALL)
_VOTE = re.compile(r"(?<![\w.])[01](?![\w]|\.\d)")
_ONLY = re.compile(r"[\W_]*[01][\W_]*(?:[01][\W_]*)*")
_LABELLED = re.compile(r"[:=]\W*([01])\W*$")
_LEADING = re.compile(r"\W*([01])\s*[,;:(\-]")


@dataclass(frozen=True, slots=True)
class RltrReward:
    """RLTR's reward of one rollout.

    Attributes:
        completeness: R_comp in [0, 1].
        repeat: R_repeat <= 0.
        error: R_error <= 0.
        total: what the planner is trained on.
        valid: True when the reward is the sum of its terms.
        omitted: True when gold needs a call and none was attempted.
        score: what the release logs beside it; equal to `total` in sound mode.
    """

    completeness: float
    repeat: float
    error: float
    total: float
    valid: bool
    omitted: bool
    score: float

    @property
    def repeats(self) -> int:
        """Number of repeated calls."""
        return round(self.repeat / REPEAT)

    @property
    def errors(self) -> int:
        """Number of invalid blocks."""
        return round(self.error / ERROR)


def rltr_reward(
    tried: Attempts, gold: Gold, completeness: float, mode: Literal["sound", "reference"] = "sound"
) -> RltrReward:
    """The planner's reward.

    - Gold needs a call and no opening tag was written: -0.5 (the release logs that, but trains on -1, R4).
    - Gold needs tools and the row offers none: the row is broken; 0 and not valid (the release trains on -1, R5).
    - Nothing that was attempted parses: -1. In the release any invalid block gives -1, so that R_error never
      counts (R1); here it counts as the method states.
    - A repeat is a call equal to the one right before it, in one block or in two: twins in a block waste as
      much as twins in a row (R2). Equal means equal JSON, so 1 is not true (the release: it is, R3).

    Args:
        tried: from `hierr.process.attempts`, or `hierr.reference.attempts` in reference mode.
        gold: the gold calls; only whether there are any matters.
        completeness: mean vote of the checker, from `completeness_from`.
        mode: the same mode as `tried` was made with.
    """
    if mode == "reference":
        return _reference(tried, gold, completeness)
    if gold.calls and not gold.allowed_tools:
        return RltrReward(0.0, 0.0, 0.0, 0.0, False, False, 0.0)
    if gold.calls and not tried.opened:
        return RltrReward(0.0, 0.0, 0.0, NO_CALL, False, True, NO_CALL)
    repeat = REPEAT * sum(_same(a, b) for a, b in pairwise([[c.name, c.arguments] for c in tried.calls]))
    error = ERROR * (tried.tags - tried.valid_blocks)
    if tried.tags and not tried.well_formed:
        return RltrReward(completeness, repeat, error, MALFORMED, False, False, MALFORMED)
    total = completeness + repeat + error
    return RltrReward(completeness, repeat, error, total, True, False, total)


def completeness_from(replies: Sequence[str | None], mode: Literal["sound", "reference"] = "sound") -> float:
    """R_comp, the mean of the checker's votes that can be read, in [0, 1].

    Args:
        replies: the checker's answers; None for a request that failed.
        mode: in reference mode no readable vote at all gives 0.

    Raises:
        JudgeFault: no vote can be read. That is no incomplete plan but a failed checker.
    """
    votes = [vote for reply in replies if reply is not None and (vote := vote_in(reply, mode)) is not None]
    if votes:
        return sum(votes) / len(votes)
    if mode == "reference":
        return 0.0
    raise JudgeFault("checker_unparsable", f"no vote in {len(replies)} replies")


def vote_in(reply: str, mode: Literal["sound", "reference"] = "sound") -> int | None:
    """The 0 or 1 that a completeness checker's reply votes, None when it does not vote.

    The vote is a line of its own, or follows a colon or equals sign at the end of its line, or opens the reply.
    The release takes the last lone 0 or 1 anywhere, also out of an explanation (R6).

    Example:
        >>> vote_in("Complete: 1"), vote_in("0, because only 1 of 2 lookups was made"), vote_in("Step 1 is missing")
        (1, 0, None)
    """
    text = _THOUGHT.sub("", reply).strip()
    if mode == "reference":
        found = re.findall(r"\b[01]\b", text)
        return int(found[-1]) if found else None
    lines = _UNCLOSED.sub("", text).splitlines()
    for line in reversed(lines):
        if _ONLY.fullmatch(line):
            return int(_VOTE.findall(line)[-1]) if _VOTE.search(line) else None
        if (labelled := _LABELLED.search(line)) is not None:
            return int(labelled.group(1))
    leading = _LEADING.match(lines[0]) if lines else None
    return int(leading.group(1)) if leading else None


def _reference(tried: Attempts, gold: Gold, completeness: float) -> RltrReward:
    if not gold.allowed_tools:
        return RltrReward(0.0, 0.0, 0.0, MALFORMED, False, False, 0.0)
    if gold.calls and not tried.opened:
        return RltrReward(0.0, 0.0, 0.0, MALFORMED, False, True, NO_CALL)
    repeat = REPEAT * sum(a == b for a, b in pairwise(tried.calls))
    error = ERROR * (tried.tags - tried.valid_blocks)
    valid = not error
    total = completeness + repeat + error if valid else MALFORMED
    return RltrReward(completeness, repeat, error, total, valid, False, total)


def _same(a: Any, b: Any) -> bool:
    """Equality of JSON values, in which true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)
