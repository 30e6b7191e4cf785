"""ToolPO's rewards from gold calls, and the verdict of its Solved / Unsolved judge (baseline, arXiv:2609.29050).

A_succ comes from R_succ (one per rollout), A_action from R_action (method section 5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from verl_slca.hierr import reference
from verl_slca.hierr.matching import loosely_equal
from verl_slca.hierr.process import Attempts
from verl_slca.rows import Gold, GoldCall
from verl_slca.trajectory import ToolCall

Verdict = Literal["Solved", "Unsolved", "Unsure"]

_LABEL = re.compile(r"\b(solved|unsolved|unresolved|unsure)\b")
_NEGATED = re.compile(r"(?:\b(?:not|never|no|cannot|hardly)|n't)(?:\s+\w+){0,2}\s*$")
_PARTLY = re.compile(r"\b(?:partly|partially|half)\s*$")
_MARKED = re.compile(r"^\W*(?:final|verdict|assessment|answer|result|conclusion)\b[^:]*:\W*(\w+)\W*$")


@dataclass(frozen=True, slots=True)
class ActionReward:
    """ToolPO's two scores of one rollout by the gold calls.

    Attributes:
        ratio: R_action, strictly correct calls / gold calls, in [0, 1].
        correct: number of gold calls that were made.
        solved: R_succ by the reference rule, 1.0 when every gold call was made, else 0.0.
    """

    ratio: float
    correct: int
    solved: float


def action_reward(tried: Attempts, gold: Gold, mode: Literal["sound", "reference"] = "sound") -> ActionReward:
    """R_action and R_succ of the calls that were tried.

    A call is strictly correct when name and key set are those of a gold call and all values are loosely equal;
    gold calls and calls are paired one to one, as many as can be. When no call was wanted, the ratio is 1 for
    no attempt and 0 for any (the release: always 1, P3). Extra calls cost nothing here (P2): the ratio is a
    recall by definition, and repeats are for other terms to punish.

    In reference mode extra keys are accepted (P1) and pairing is first come, first served (P4).

    Args:
        tried: from `hierr.process.attempts`, or `hierr.reference.attempts` in reference mode.
        gold: the gold calls.
        mode: the same mode as `tried` was made with.
    """
    from scipy.optimize import linear_sum_assignment  # not at the top: it takes a third of a second

    if not gold.calls:
        ratio = 1.0 if mode == "reference" or not tried.tags else 0.0
        return ActionReward(ratio, 0, ratio)
    if mode == "reference":
        correct = reference.strictly_correct(gold.calls, tried.calls)
    else:
        fits = np.array([[_satisfies(call, wanted) for call in tried.calls] for wanted in gold.calls], dtype=float)
        pairs = linear_sum_assignment(fits, maximize=True) if tried.calls else ([], [])
        correct = int(fits[pairs].sum()) if tried.calls else 0
    return ActionReward(correct / len(gold.calls), correct, float(correct == len(gold.calls)))


def verdict_in(reply: str, mode: Literal["sound", "reference"] = "sound") -> Verdict:
    """The verdict that a Solved / Unsolved judge's reply states; only "Solved" is worth 1.

    A line that is nothing but a label, or labels itself as the verdict ("Final: Solved"), decides. Otherwise
    every mention counts with its negation ("not solved" is Unsolved), and mentions that disagree are Unsure.
    The release looks for substrings, so "not solved" and "dissolved" read as Solved (P6).

    Example:
        >>> verdict_in("The answer is **Solved**"), verdict_in("Not solved."), verdict_in("Dissolved; unsure")
        ('Solved', 'Unsolved', 'Unsure')
    """
    text = reply.strip().lower()
    if mode == "reference":
        if "unsolved" in text:
            return "Unsolved"
        return "Solved" if "solved" in text else "Unsure"
    for line in text.splitlines():
        marked = _MARKED.match(line)
        alone = marked.group(1) if marked else re.sub(r"^\W+|\W+$", "", line)
        if _LABEL.fullmatch(alone):
            return _named(alone)
    mentions = {_mention(text, match) for match in _LABEL.finditer(text)}
    return mentions.pop() if len(mentions) == 1 else "Unsure"


def _mention(text: str, match: re.Match[str]) -> Verdict:
    before = text[max(0, match.start() - 40) : match.start()]
    said = _named(match.group())
    if said != "Unsure" and _PARTLY.search(before):
        return "Unsure"
    if _NEGATED.search(before):
        return {"Solved": "Unsolved", "Unsolved": "Solved", "Unsure": "Unsure"}[said]  # type: ignore[return-value]
    return said


def _named(label: str) -> Verdict:
    return {"solved": "Solved", "unsure": "Unsure"}.get(label, "Unsolved")  # type: ignore[return-value]


def _satisfies(call: ToolCall, wanted: GoldCall) -> bool:
    if call.name != wanted.name:
        return False
    if wanted.arguments is None:
        return True
    return call.arguments.keys() == wanted.arguments.keys() and all(
        loosely_equal(call.arguments[key], value) for key, value in wanted.arguments.items()
    )
