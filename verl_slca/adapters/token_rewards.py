"""How the two rewards of a rollout travel on its tokens: `place` writes them, `read` reads a batch back.

verl hands an estimator nothing but token rewards, the response mask and the group. So the positions of the
rewards say what the segments are: the summary reward lies on the last token of the final run of learnable
tokens, the tool reward on the first token of the last tool run. A final run whose last token is bare is
therefore a tool run: a rollout that was cut off, or stopped by the turn limit, before it answered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from verl_slca.errors import ConfigError
from verl_slca.segments import last_run_start, mask_rule

ZERO_MARK = torch.finfo(torch.float32).tiny
"""Smallest normal float32, written for a reward of 0: the segment exists. Read back as exactly 0."""


class SegmentRewards(NamedTuple):
    """What a batch's tokens say, in the order in which `advantages.slca` takes it.

    Attributes:
        tool: return of the tool segment, (B,), float32; 0 where there is none.
        summary: return of the final answer, (B,), float32; 0 where there is none.
        tool_mask: tokens of the tool segment, (B, T), bool.
        summary_mask: tokens of the final answer, (B, T), bool.
    """

    tool: Tensor
    summary: Tensor
    tool_mask: Tensor
    summary_mask: Tensor


def place(
    response_mask: Sequence[int] | Tensor,
    tool_reward: float | None,
    summary_reward: float | None,
    *,
    answer_start: int | None = None,
) -> Tensor:
    """Token rewards of one rollout that `read` turns back into the same two rewards and segments.

    The last token stays bare in a rollout without an answer. If its final run is a single token, the tool
    reward therefore moves to the first token of the run before it.

    Args:
        response_mask: 1 on the policy's tokens, 0 on the environment's, length T.
        tool_reward: reward of the tool segment; None when the rollout has no tool run.
        summary_reward: reward of the answer; None when the rollout never answered, so that all of its runs
            are tool runs.
        answer_start: index of the answer's first token, for an agent loop that knows its turns; checked
            against the mask.

    Returns:
        (T,), float32. Magnitudes below `ZERO_MARK`, 0 included, are written as `ZERO_MARK`.

    Raises:
        ValueError: the rewards cannot be read back from this mask: a reward is not a finite float32; there
            is a reward without a segment, or a segment without a reward; the answer does not start with the
            final run, since no environment token lies between it and the turn before; or the whole rollout
            is one unanswered token, which has no room to stay bare.

    Example:
        >>> place([1, 1, 0, 1, 1], 0.5, 0.25).tolist()
        [0.5, 0.0, 0.0, 0.0, 0.25]
        >>> place([1, 1, 0, 1, 1], 0.5, None).tolist()
        [0.0, 0.0, 0.0, 0.5, 0.0]
    """
    learnable = torch.as_tensor(response_mask) != 0
    token_rewards = torch.zeros(len(learnable), dtype=torch.float32)
    starts = (torch.diff(learnable.int(), prepend=torch.zeros(1, dtype=torch.int32)) == 1).nonzero().flatten().tolist()
    last = int(learnable.nonzero()[-1]) if starts else None
    tool_starts = starts if summary_reward is None else starts[:-1]

    _require_one_reward_per_segment("summary_reward", summary_reward, starts[len(tool_starts) :], starts)
    _require_one_reward_per_segment("tool_reward", tool_reward, tool_starts, starts)
    if answer_start is not None and summary_reward is not None and answer_start != starts[-1]:
        raise ValueError(
            f"the answer starts at token {answer_start}, but the final run of learnable tokens at {starts[-1]}: turns "
            f"without an environment token between them cannot be told apart, so the agent loop must put one there"
        )
    if summary_reward is not None:
        token_rewards[last] = _mark("summary_reward", summary_reward)
    if tool_reward is not None:
        free = [start for start in tool_starts if start != last]
        if not free:
            raise ValueError(
                f"the rollout is one token (at {last}) and no answer, and a reward on it would be read as an answer's; "
                f"a single token holds no call, so set its response_mask to 0"
            )
        token_rewards[free[-1]] = _mark("tool_reward", tool_reward)
    return token_rewards


def read(
    token_level_rewards: Tensor, response_mask: Tensor, segments: Literal["turns", "mask_rule"] = "turns"
) -> SegmentRewards:
    """The two segments of every rollout of a batch and their returns.

    A segment's return is the sum of the token rewards inside it, so rewards that another agent loop spread
    over the tokens work too, as long as the answer's last token carries a part of its reward. Rewards on
    masked tokens are ignored. A tool segment without any reward has the return 0.

    Args:
        token_level_rewards: (B, T), float.
        response_mask: (B, T), nonzero on the policy's tokens; a row of zeros (padding, or a rollout lost to
            an infrastructure fault) has no segment.
        segments: ``"turns"``: a final run with a bare last token is a tool run. ``"mask_rule"``: the final
            run is the answer, whatever it carries.

    Raises:
        ConfigError: there are tool runs, and none of them carries a reward: a scalar-reward setup.
        ValueError: a token reward is not finite; names row, token and value.

    Example:
        >>> mask = torch.tensor([[1, 1, 0, 1, 1], [1, 0, 1, 1, 0]])
        >>> batch = read(torch.stack([place(mask[0], 0.5, 0.25), place(mask[1], 0.75, None)]), mask)
        >>> batch.tool.tolist(), batch.summary.tolist(), batch.tool_mask.int().tolist()
        ([0.5, 0.75], [0.25, 0.0], [[1, 1, 0, 0, 0], [1, 0, 1, 1, 0]])
    """
    learnable = response_mask != 0
    row, column = _nonzero(token_level_rewards)  # few, so whatever follows is done on them, not on (B, T)
    kept = learnable[row, column]
    row, column = row[kept], column[kept]

    if segments == "mask_rule":
        tool_mask, summary_mask = mask_rule(learnable)
    else:
        tool_mask, summary_mask = _marked_segments(learnable, row, column)

    values = token_level_rewards[row, column].double()
    in_summary = summary_mask[row, column]
    _require_finite(values, row, column, in_summary)
    values = torch.where(values.abs() <= ZERO_MARK, 0.0, values)
    if in_summary.all() and tool_mask.any():
        raise ConfigError(_no_tool_reward(tool_mask, in_summary))
    return SegmentRewards(
        _row_sum(values, row, ~in_summary, len(learnable)),
        _row_sum(values, row, in_summary, len(learnable)),
        tool_mask,
        summary_mask,
    )


def _nonzero(values: Tensor) -> tuple[Tensor, Tensor]:
    # On one core numpy finds sparse nonzeros four times as fast as torch.
    rows, columns = np.unravel_index(np.flatnonzero(values.cpu().numpy() != 0), values.shape)
    return torch.from_numpy(rows).to(values.device), torch.from_numpy(columns).to(values.device)


def _marked_segments(learnable: Tensor, row: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
    rows, length = learnable.shape
    summary_start = last_run_start(learnable)
    run_ends = (column + 1 == length) | ~learnable[row, (column + 1).clamp(max=length - 1)]
    answered = torch.zeros(rows, dtype=torch.bool, device=learnable.device)
    answered[row[run_ends & (column >= summary_start[row])]] = True
    summary_start = torch.where(answered, summary_start, length)
    positions = torch.arange(length, device=learnable.device, dtype=torch.int32)
    summary_mask = (positions >= summary_start.to(torch.int32)[:, None]).logical_and_(learnable)
    return learnable ^ summary_mask, summary_mask


def _row_sum(values: Tensor, row: Tensor, inside: Tensor, rows: int) -> Tensor:
    return values.new_zeros(rows).index_add(0, row[inside], values[inside]).float()


def _mark(name: str, reward: float) -> float:
    # Through float32, since that is what has to survive: 1e39 overflows, 1e-39 would read as silence.
    written = torch.tensor(reward, dtype=torch.float32).item()
    if not math.isfinite(written):
        raise ValueError(f"{name} is {reward!r}; it must be finite as a float32")
    return written if abs(written) > ZERO_MARK else ZERO_MARK


def _require_one_reward_per_segment(name: str, reward: float | None, runs: list[int], starts: list[int]) -> None:
    if (reward is None) == (not runs):
        return
    problem = "None, but there is a segment" if reward is None else f"{reward!r}, but there is no such segment"
    raise ValueError(
        f"{name} is {problem}: runs of learnable tokens start at {starts}; with a summary_reward the last run is the "
        f"answer and those before it are tool runs, without one all are tool runs"
    )


def _require_finite(values: Tensor, row: Tensor, column: Tensor, in_summary: Tensor) -> None:
    bad = (~values.isfinite()).nonzero().squeeze(1)
    if len(bad):
        first = int(bad[0])
        name = "summary_reward" if in_summary[first] else "tool_reward"
        raise ValueError(
            f"{name} of row {int(row[first])} (token {int(column[first])}) is missing or not finite "
            f"({float(values[first])}); the reward function must return both `tool_reward` and `summary_reward` as "
            f"finite numbers in reward_extra_info, or the agent loop put finite rewards on tokens"
        )


def _no_tool_reward(tool_mask: Tensor, in_summary: Tensor) -> str:
    having = int(tool_mask.any(1).sum())
    return (
        f"the tool reward is missing: {having} of {len(tool_mask)} rollouts have tool tokens and none of those carries "
        f"a reward ({len(in_summary)} rewards lie on final answers), so they would be trained on silence. Either "
        f"return `tool_reward` and `summary_reward` in the reward function's reward_extra_info, or put the rewards on "
        f"tokens in the agent loop (verl_slca.adapters.token_rewards.place). One reward for the whole rollout is not "
        f"enough: with such a reward, use algorithm.adv_estimator=grpo"
    )
