"""One rollout and its gold in, the two segment rewards of HierR out.

total = w_tool * S_process + w_sum * S_summary     (1.0 and 1.0 in the paper; stock GRPO trains on this)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from verl_slca.errors import JudgeFault, as_fault
from verl_slca.hierr import reference
from verl_slca.hierr.asking import Asker, LlmJudgeConfig, make_asker
from verl_slca.hierr.llm_judge import LlmJudge
from verl_slca.hierr.process import PRESETS, Attempts, Preset, ProcessScore, ProcessWeights, attempts, process_score
from verl_slca.hierr.rules_judge import RulesJudge
from verl_slca.hierr.summary import SummaryJudge
from verl_slca.parsing import parse_turn, text_from_trajectory, trajectory_from_text
from verl_slca.rows import Gold, gold_from
from verl_slca.trajectory import Trajectory

Mode = Literal["sound", "reference"]

_NONE = ProcessScore(0.0, 0.0, 0.0, 0.0, 0.0)
_UNTRIED = Attempts(0, 0, 0, (), 0, 0)


@dataclass(frozen=True, slots=True)
class HierrConfig:
    """Settings of the reward; record them with every result.

    Attributes:
        mode: ``"sound"``, or ``"reference"`` for the release's behaviour, quirks included.
        preset: named process weights.
        weights: explicit process weights; they win over `preset`.
        w_tool: weight of the process reward in the total.
        w_sum: weight of the summary reward in the total.
        no_call_penalty: total of a rollout that made no call where gold needs one.
        judge: who rates the summary; under a baseline's estimator ``"llm"`` also decides what the baseline asks.
        llm: settings of the ``"llm"`` judge.
    """

    mode: Mode = "sound"
    preset: Preset = "default"
    weights: ProcessWeights | None = None
    w_tool: float = 1.0
    w_sum: float = 1.0
    no_call_penalty: float = -0.5
    judge: Literal["rules", "llm"] = "rules"
    llm: LlmJudgeConfig = field(default_factory=LlmJudgeConfig)

    def __post_init__(self) -> None:
        for name in ("w_tool", "w_sum"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a finite number >= 0, got {getattr(self, name)}")
        if not -float("inf") < self.no_call_penalty <= 0.0:
            raise ValueError(f"no_call_penalty must be a finite number <= 0, got {self.no_call_penalty}")

    @property
    def process_weights(self) -> ProcessWeights:
        """The weights in force."""
        return self.weights or PRESETS[self.preset]


@dataclass(frozen=True, slots=True)
class HierrReward:
    """What a rollout earned.

    Attributes:
        tool: reward of the tool segment, None when the rollout has none.
        summary: reward of the summary segment, None when the rollout has none or the judge failed.
        total: the one number for single-advantage baselines and metrics.
        process: S_process in [0, 1], also where there is no tool segment to receive it.
        parts: named numbers for metrics.
        omitted: True when gold needs a call and the rollout made none.
        judged: True when the judge gave a verdict.
        fault: what failed other than the policy. A rollout with a fault is to be left out of its group's
            statistics; the numbers beside it are only what is known without the failed part.
    """

    tool: float | None
    summary: float | None
    total: float
    process: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    omitted: bool = False
    judged: bool = False
    fault: str | None = None


def make_judge(config: HierrConfig, asker: Asker | None = None) -> SummaryJudge:
    """The judge that `config` names; `asker` is how it reaches its model, made from `config` when it is None."""
    if config.judge == "rules":
        return RulesJudge()
    return LlmJudge(asker or make_asker(config.llm))


async def score_rollout(trajectory: Trajectory, gold: Gold, judge: SummaryJudge, config: HierrConfig) -> HierrReward:
    """The segment rewards of one rollout (method sections 2 and 3; arXiv:2609.29050, HierR).

    - No tool segment (the rollout only answered): `tool` is None. No answer (cut off, or out of turns):
      `summary` is None.
    - Omission (gold needs a call, no well-formed one was made): total -0.5, on the summary segment alone, 0 on
      the tool segment that malformed attempts make. A rollout that never answered has it on its tool segment.
    - The summary is judged whenever there is a reply; it is 0 unjudged when the reply is empty, or when gold
      needs calls and no tool said anything. A correct abstention is judged like any other reply; text that was
      cut off before it became an answer abstains from nothing and earns no process reward.
    - A rollout that ended in a fault, a judge that failed, and a row whose gold needs tools that are not there
      have `fault` set and are no score.

    In reference mode the rollout is rendered to flat text and scored as the release scores it, with a summary
    for the last turn whatever it is.
    """
    if trajectory.stop == "fault":
        return HierrReward(
            None, None, 0.0, parts=_parts(_NONE, 0.0, _UNTRIED, gold), fault=trajectory.fault or "unknown"
        )
    if config.mode == "reference":
        turns = len(trajectory.turns)
        return await _score_reference(text_from_trajectory(trajectory), gold, judge, config, turns)
    if gold.calls and not gold.allowed_tools:
        return _unscorable(gold)
    tried = attempts(trajectory, gold.allowed_tools)
    has_tool, has_summary = bool(trajectory.tool_turns), trajectory.answer_turn is not None
    if gold.calls and not tried.well_formed:
        return _omission(tried, gold, has_tool, has_summary, config)
    score = process_score(tried, gold)
    if not gold.calls and not tried.tags and not has_summary:
        score = _NONE
    reply = parse_turn(trajectory.answer).content
    said = [result.content for result in trajectory.results if result.content.strip()]
    question = asked(gold)
    judgeable = has_summary and bool(reply) and bool(said or not gold.calls)
    return await _with_summary(
        score, tried, gold, has_tool, has_summary, judgeable, question, said, reply, judge, config
    )


def asked(gold: Gold) -> str:
    """The user's request as a judge reads it, earlier turns of the conversation included."""
    return f"{gold.context}\n{gold.question}" if gold.context else gold.question


async def score_text(
    text: str | None, ground_truth: Mapping[str, Any], judge: SummaryJudge, config: HierrConfig, where: str = ""
) -> HierrReward:
    """`score_rollout` for a flat transcript and a raw `ground_truth` object.

    Raises:
        DataError: gold in an unknown shape (sound mode; the release drops it silently).

    Example:
        >>> import asyncio
        >>> truth = {"allowed_tools": ["ping"], "gold_tool_calls": [[{"name": "ping", "arguments": {"host": "h1"}}]]}
        >>> text = '<tool_call>{"name": "ping", "arguments": {"host": "h2"}}</tool_call>'
        >>> reward = asyncio.run(score_text(text, truth, RulesJudge(), HierrConfig()))
        >>> round(reward.tool, 3), reward.summary
        (0.8, None)
    """
    text = text or ""
    if config.mode == "sound":
        return await score_rollout(trajectory_from_text(text), gold_from(ground_truth, where), judge, config)
    turns = len(trajectory_from_text(text).turns)
    return await _score_reference(text, reference.gold_from(ground_truth), judge, config, turns)


async def _score_reference(text: str, gold: Gold, judge: SummaryJudge, config: HierrConfig, turns: int) -> HierrReward:
    has_tool, has_summary = turns > 1, turns > 0
    if not gold.allowed_tools:
        return _unscorable(gold)
    tried = reference.attempts(text, gold.allowed_tools)
    if gold.calls and not tried.opened:
        return _omission(tried, gold, has_tool, has_summary, config)
    score = reference.process_score(tried, gold)
    said, reply = reference.responses(text), reference.reply(text)
    judgeable = bool(said) and len(reply) >= reference.MIN_REPLY_CHARS
    return await _with_summary(
        score, tried, gold, has_tool, has_summary, judgeable, gold.question, said, reply, judge, config
    )


def _unscorable(gold: Gold) -> HierrReward:
    parts = _parts(_NONE, 0.0, _UNTRIED, gold)
    return HierrReward(0.0, 0.0, 0.0, parts=parts, fault="missing_allowed_tools")


def _omission(tried: Attempts, gold: Gold, has_tool: bool, has_summary: bool, config: HierrConfig) -> HierrReward:
    return HierrReward(
        tool=(0.0 if has_summary else config.no_call_penalty) if has_tool else None,
        summary=config.no_call_penalty if has_summary else None,
        total=config.no_call_penalty,
        parts=_parts(_NONE, 0.0, tried, gold),
        omitted=True,
    )


async def _with_summary(
    score: ProcessScore,
    tried: Attempts,
    gold: Gold,
    has_tool: bool,
    has_summary: bool,
    judgeable: bool,
    question: str,
    said: Sequence[str],
    reply: str,
    judge: SummaryJudge,
    config: HierrConfig,
) -> HierrReward:
    process = score.total(config.process_weights)
    rating, fault = 0.0, None
    if judgeable:
        try:
            rating = await judge.rate(question, said, reply)
        except JudgeFault as error:
            fault = as_fault(error, "reward").kind
    return HierrReward(
        tool=process if has_tool else None,
        summary=rating if has_summary and fault is None else None,
        total=config.w_tool * process + config.w_sum * rating,
        process=process,
        parts=_parts(score, process, tried, gold) | {"summary": rating},
        judged=judgeable and fault is None,
        fault=fault,
    )


def _parts(score: ProcessScore, process: float, tried: Attempts, gold: Gold) -> dict[str, float]:
    return {
        "format": score.format,
        "name": score.name,
        "key": score.key,
        "value": score.value,
        "parallel": score.parallel,
        "process": process,
        "summary": 0.0,
        "opened": tried.opened,
        "closed": tried.closed,
        "valid_blocks": tried.valid_blocks,
        "calls": len(tried.calls),
        "gold_calls": len(gold.calls),
    }
