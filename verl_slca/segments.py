"""Which response tokens belong to the tool segment and which to the summary segment.

`turn_segments` asks the rollout, which knows its turns; `mask_rule` is the fallback for rollouts that come
from elsewhere and are known only by their ``response_mask``. (B = batch, T = response tokens.)
"""

from __future__ import annotations

import torch

from verl_slca.trajectory import Trajectory


def turn_segments(trajectory: Trajectory, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(tool mask, summary mask) of one rollout, two bool tensors of shape (T,).

    Section 2 of arXiv:2609.29050, except that the turns decide: a rollout that never answered has no summary
    (the release trains its last call as if it were the answer), and adjacent turns stay apart. Spans are
    clipped to `length`, so a response that was cut afterwards keeps its segments.

    Args:
        trajectory: a rollout with token spans; turns with the span (0, 0) mark nothing.
        length: response length T, in tokens.

    Example:
        >>> from verl_slca.trajectory import Turn
        >>> call, answer = Turn("call", span=(0, 2)), Turn("answer", span=(3, 5))
        >>> tool, summary = turn_segments(Trajectory((call, answer), "answer"), 6)
        >>> tool.int().tolist(), summary.int().tolist()
        ([1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0])
    """
    tool = torch.zeros(length, dtype=torch.bool)
    summary = torch.zeros(length, dtype=torch.bool)
    for turn in trajectory.tool_turns:
        tool[turn.span[0] : turn.span[1]] = True
    if trajectory.answer_turn is not None:
        start, end = trajectory.answer_turn.span
        summary[start:end] = True
    return tool, summary


def mask_rule(response_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(tool mask, summary mask) by runs of learnable tokens, two bool tensors of shape (B, T).

    The last run of a row is its summary, all runs before it are its tool segment; a single run is a summary
    alone, and a row without learnable tokens has neither (the release's rule, kept for exact reproduction).
    It calls a rollout's last run a summary even if the rollout was cut off in a call: see `turn_segments`.

    Args:
        response_mask: (B, T), any dtype, nonzero on the policy's tokens.

    Example:
        >>> tool, summary = mask_rule(torch.tensor([[1, 1, 0, 1, 0], [0, 1, 1, 0, 0]]))
        >>> tool.int().tolist()
        [[1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]
        >>> summary.int().tolist()
        [[0, 0, 0, 1, 0], [0, 1, 1, 0, 0]]
    """
    learnable = response_mask if response_mask.dtype == torch.bool else response_mask != 0
    positions = torch.arange(learnable.shape[1], device=learnable.device, dtype=torch.int32)
    in_last_run = positions >= last_run_start(learnable).to(torch.int32).unsqueeze(1)
    summary = in_last_run & learnable
    return summary ^ learnable, summary


def last_run_start(response_mask: torch.Tensor) -> torch.Tensor:
    """Index of the first token of each row's last run of learnable tokens, (B,) int64; T for a row with none.

    Runs are sparse, so only their starts are listed: the work beyond two passes over a bool mask grows with
    the number of runs, and nothing of shape (B, T) wider than a bool is made.

    Example:
        >>> last_run_start(torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0]])).tolist()
        [3, 5]
    """
    learnable = response_mask if response_mask.dtype == torch.bool else response_mask != 0
    rows, length = learnable.shape
    last = torch.full((rows,), -1, dtype=torch.int64, device=learnable.device)
    if length:
        starts = learnable.clone()
        starts[:, 1:] &= ~learnable[:, :-1]
        row, column = torch.nonzero(starts, as_tuple=True)
        last.scatter_reduce_(0, row, column, reduce="amax")
    return torch.where(last < 0, length, last)
