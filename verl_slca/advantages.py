"""Segment rewards in, token advantages out: the estimators `slca`, `toolpo` and `rltr`.

In: one reward per rollout and segment, the segments' masks, the group of each rollout. Out: advantages
(B, T). Rewards are compared at float32, the precision in which they travel, and reduced in float64.
`adapters/estimators.py` registers these functions in verl; any other trainer can call them directly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

EPS = 1e-6
"""Added to the standard deviation; the paper's and verl's value."""
NO_CALL_PENALTY = -0.5
"""Total of a rollout that made no call although the gold needs one (section "omission penalty" of the paper)."""

Mode = Literal["sound", "reference"]
"""``"sound"``: right where the authors' release is wrong. ``"reference"``: the release's behaviour."""


@dataclass(frozen=True, slots=True)
class SlcaConfig:
    """Settings under ``algorithm.slca``.

    Attributes:
        tool_weight: factor on the tool segment's own advantage; ToolPO's lambda under `slca_toolpo`.
        summary_weight: factor on the summary segment's advantage; read by `slca` alone.
        segments: ``"turns"``: the marks of `token_rewards.place` say where a rollout's answer is.
            ``"mask_rule"``: the last run of `response_mask` always is the answer, and the baselines keep the
            release's quirks, for exact reproduction.
        max_lost_share: share of a step's rollouts, in (0, 1], that infrastructure faults may take before training
            stops; read by the `slca_sync` trainer, under any estimator.
        max_silent_steps: steps in a row without a readable call or without any advantage, before the `slca_sync`
            trainer stops; 0: never.
    """

    tool_weight: float = 1.0
    summary_weight: float = 1.0
    segments: Literal["turns", "mask_rule"] = "turns"
    max_lost_share: float = 0.5
    max_silent_steps: int = 10

    def __post_init__(self) -> None:
        if not 0.0 < self.max_lost_share <= 1.0:
            raise ValueError(f"max_lost_share must be in (0, 1], got {self.max_lost_share}")
        if self.max_silent_steps < 0:
            raise ValueError(f"max_silent_steps must be at least 0, got {self.max_silent_steps}")


def group_normalise(
    rewards: Tensor, present: Tensor, group: Tensor, norm_by_std: bool = True, eps: float = EPS
) -> Tensor:
    """Each present reward's distance from its group's mean, in units of the group's standard deviation.

        z_i = (r_i - mean_g(r)) / (std_g(r) + eps),   over the present members of group g

    Source: Eq. 3 and the presence filter of arXiv:2609.29050; std is unbiased (n - 1). The result does not
    depend on the order of the rows, to the last bit.

    Degenerate cases, all exactly 0: an absent member; a group with fewer than two present members (never
    mean 0 and std 1, which would leave the raw reward standing); a group of equal rewards. The release
    gives up to 0.1 in the last case, the rounding error of a float32 mean divided by eps.

    Args:
        rewards: reward of each rollout, (B,), any float dtype, finite where present.
        present: whether the rollout has the segment the reward is for, (B,), bool.
        group: id of the rollout's group, (B,), int64, any values.
        norm_by_std: False skips the division (Dr. GRPO, arXiv:2503.20783).
        eps: added to the standard deviation.

    Returns:
        Advantage of each rollout, (B,), float32.

    Raises:
        ValueError: shapes differ, or a present reward is not finite; names the row and the value.

    Example:
        >>> rewards, group = torch.tensor([0.75, 0.25, 7.0, 0.9, 0.9]), torch.tensor([7, 7, 7, 8, 8])
        >>> group_normalise(rewards, torch.tensor([True, True, False, True, True]), group)
        tensor([ 0.7071, -0.7071,  0.0000,  0.0000,  0.0000])
    """
    if not rewards.shape == present.shape == group.shape or rewards.dim() != 1:
        shapes = f"{tuple(rewards.shape)}, {tuple(present.shape)}, {tuple(group.shape)}"
        raise ValueError(f"rewards, present and group need one shape (B,), got {shapes}")
    # A handful of numbers: on the CPU their sums come out in the same order, hence the same bits, every time.
    rows = present.cpu().nonzero().squeeze(1)
    values = rewards.detach().cpu()[rows].float().double() + 0.0  # -0.0 becomes 0.0: equal values, equal bits
    _require_finite(values, rows)
    group_ids, member_of = torch.unique(group.cpu()[rows], return_inverse=True)
    order = torch.argsort(values, stable=True)
    order = order[torch.argsort(member_of[order], stable=True)]
    rows, values, member_of = rows[order], values[order], member_of[order]

    count = torch.bincount(member_of, minlength=len(group_ids))
    lowest = values.new_full((len(group_ids),), torch.inf).scatter_reduce(0, member_of, values, "amin")
    # Measured from the group's own minimum, equal rewards are exact zeros before anything is rounded.
    above = values - lowest[member_of]
    centred = above - (_group_sum(above, member_of, count) / count)[member_of]
    if norm_by_std:
        std = (_group_sum(centred.square(), member_of, count) / (count - 1).clamp(min=1)).sqrt()
        centred = centred / (std + eps)[member_of]
    advantages = torch.zeros(len(rewards), dtype=torch.float32)
    advantages[rows] = torch.where(count[member_of] >= 2, centred, 0.0).float()
    return advantages.to(rewards.device)


def slca(
    tool_reward: Tensor,
    summary_reward: Tensor,
    tool_mask: Tensor,
    summary_mask: Tensor,
    group: Tensor,
    *,
    tool_weight: float = 1.0,
    summary_weight: float = 1.0,
    norm_by_std: bool = True,
) -> Tensor:
    """Segment-locked advantages: tool tokens learn from the tool reward alone, the answer from its own alone.

        A_t = tool_weight z(R_tool)        on tool tokens
              summary_weight z(R_sum)      on summary tokens
              0                            elsewhere

    Source: Eq. 3 and 4, arXiv:2609.29050; z is `group_normalise` over the rollouts that have the segment.
    Weights apply after normalisation; before it they would cancel. Isolation is exact: no bit of a tool
    token's advantage depends on a summary reward, or the other way round.

    Degenerate cases: see `group_normalise`; a rollout with no learnable token is in no statistics.

    Args:
        tool_reward: (B,), float, finite where the rollout has a tool segment, ignored elsewhere.
        summary_reward: (B,), float, likewise.
        tool_mask: tokens of the tool segment, (B, T), bool.
        summary_mask: tokens of the final answer, (B, T), bool, disjoint from `tool_mask`.
        group: id of each rollout's group, (B,), int64.
        tool_weight: lambda_tool.
        summary_weight: lambda_sum.
        norm_by_std: False skips the division by the standard deviation.

    Returns:
        Advantages, (B, T), float32.

    Raises:
        ValueError: as `group_normalise`.

    Example:
        >>> tool_mask = torch.tensor([[True, False, False], [True, False, False]])
        >>> summary_mask = torch.tensor([[False, False, True], [False, False, True]])
        >>> slca(torch.tensor([1.0, 0.0]), torch.tensor([0.2, 0.6]), tool_mask, summary_mask, torch.tensor([7, 7]))
        tensor([[ 0.7071,  0.0000, -0.7071],
                [-0.7071,  0.0000,  0.7071]])
    """
    tool = group_normalise(tool_reward, _present(tool_mask), group, norm_by_std)
    summary = group_normalise(summary_reward, _present(summary_mask), group, norm_by_std)
    return _on_tokens(tool_weight * tool, tool_mask, summary_weight * summary, summary_mask)


def toolpo(
    outcome: Tensor,
    action: Tensor,
    tool_mask: Tensor,
    summary_mask: Tensor,
    group: Tensor,
    *,
    action_weight: float = 1.0,
    norm_by_std: bool = True,
    mode: Mode = "sound",
) -> Tensor:
    """ToolPO's advantages: the outcome's on every token, the actions' on top of it on tool tokens.

        A_t = z(R_succ) + action_weight z(R_action)   on tool tokens
              z(R_succ)                               on summary tokens
              0                                       elsewhere

    Source: ToolPO as the baseline of arXiv:2609.29050; the release divides both parts by their standard
    deviation, the paper centres them only (``norm_by_std=False``).

    z(R_succ) runs over the rollouts with a learnable token, z(R_action) over those with a tool segment.
    ``mode="reference"`` repeats the release: a rollout without a learnable token counts in z(R_succ), and
    one alone in its group keeps its raw outcome as its advantage; in ``"sound"`` mode it gets 0.

    Args:
        outcome: R_succ, 1.0 for a solved task and 0.0 otherwise (any finite number works), (B,), float.
            Reward tokens must be masked before they are summed to it; the release sums masked ones too.
        action: R_action, share of strictly correct calls, (B,), float in [0, 1].
        tool_mask: tokens of the tool segment, (B, T), bool.
        summary_mask: tokens of the final answer, (B, T), bool, disjoint from `tool_mask`.
        group: id of each rollout's group, (B,), int64.
        action_weight: lambda of the action part.
        norm_by_std: False skips the division by the standard deviation.
        mode: see above.

    Returns:
        Advantages, (B, T), float32.

    Raises:
        ValueError: as `group_normalise`.

    Example:
        >>> tool_mask = torch.tensor([[True, False, False], [True, False, False]])
        >>> summary_mask = torch.tensor([[False, False, True], [False, False, True]])
        >>> toolpo(torch.tensor([1.0, 0.0]), torch.tensor([0.6, 0.2]), tool_mask, summary_mask, torch.tensor([7, 7]))
        tensor([[ 1.4142,  0.0000,  0.7071],
                [-1.4142,  0.0000, -0.7071]])
    """
    has_tool = _present(tool_mask)
    learnable = has_tool | _present(summary_mask)
    if mode == "reference":
        learnable = torch.ones_like(learnable)
    success = group_normalise(outcome, learnable, group, norm_by_std)
    if mode == "reference":
        _, member_of, count = torch.unique(group, return_inverse=True, return_counts=True)
        raw = outcome.float() / (1.0 + EPS) if norm_by_std else outcome.float()
        success = torch.where(count[member_of] == 1, raw, success)
    actions = group_normalise(action, has_tool, group, norm_by_std)
    return _on_tokens(success + action_weight * actions, tool_mask, success, summary_mask)


def rltr(
    planner_reward: Tensor,
    tool_mask: Tensor,
    summary_mask: Tensor,
    group: Tensor,
    *,
    norm_by_std: bool = True,
    mode: Mode = "sound",
) -> Tensor:
    """RLTR's advantages: the planner's reward on the planner's tokens, nothing on the summary.

        A_t = z(R_comp + R_repeat + R_error)   on planner tokens; malformed rollouts have R = -1
              0                                elsewhere (the summariser is frozen)

    Source: RLTR as the baseline of arXiv:2609.29050. Planner tokens are the tool segment. We deviate for a
    rollout that only answered although a call was due, which shows in its negative reward: its answer is
    what the planner did instead, so the penalty enters the group's baseline and reaches those tokens.
    ``mode="reference"`` repeats the release, where it reaches neither.

    Degenerate cases: a rollout that only answered and has a reward of 0 or more is absent; for groups see
    `group_normalise`.

    Args:
        planner_reward: R above, (B,), float.
        tool_mask: tokens of the tool segment, (B, T), bool.
        summary_mask: tokens of the final answer, (B, T), bool, disjoint from `tool_mask`.
        group: id of each rollout's group, (B,), int64.
        norm_by_std: False skips the division by the standard deviation.
        mode: see above.

    Returns:
        Advantages, (B, T), float32.

    Raises:
        ValueError: as `group_normalise`.

    Example:
        >>> tool_mask = torch.tensor([[True, False, False], [False, False, False]])
        >>> summary_mask = torch.tensor([[False, False, True], [True, True, False]])
        >>> rltr(torch.tensor([1.0, -1.0]), tool_mask, summary_mask, torch.tensor([7, 7]))
        tensor([[ 0.7071,  0.0000,  0.0000],
                [-0.7071, -0.7071,  0.0000]])
    """
    has_tool = _present(tool_mask)
    did_not_plan = ~has_tool & _present(summary_mask) & (planner_reward < 0)
    if mode == "reference":
        did_not_plan = torch.zeros_like(did_not_plan)
    advantage = group_normalise(planner_reward, has_tool | did_not_plan, group, norm_by_std)
    return _on_tokens(advantage, tool_mask, torch.where(did_not_plan, advantage, 0.0), summary_mask)


def penalise_omission(
    tool_reward: Tensor, summary_reward: Tensor, total: Tensor, omitted: Tensor, mode: Mode = "sound"
) -> tuple[Tensor, Tensor]:
    """Segment rewards after the omission penalty: R_tool = 0 and R_sum = the penalty where it applies.

    It applies to a rollout that made no call although one was due, and to any whose total is below 0; it
    overrides both rewards and is not subtracted. R_sum becomes the total, which the reward function has set
    to `NO_CALL_PENALTY` or to another negative number. Source: the release's `compute_slca_grpo_advantage`.

    We deviate where a flagged rollout comes with a total of 0 or more: it gets `NO_CALL_PENALTY`. In
    ``"reference"`` mode it gets that total, and can come out as the best of its group.

    Args:
        tool_reward: (B,), float.
        summary_reward: (B,), float.
        total: score of the whole rollout, (B,), float.
        omitted: whether a call was due and none was made, (B,), bool, or a float that says so above 0.5.
        mode: see above.

    Returns:
        The tool and the summary reward, (B,) each, in the dtypes they came in.

    Example:
        >>> tool, summary = torch.tensor([0.9, 0.0]), torch.tensor([0.5, 1.0])
        >>> penalise_omission(tool, summary, tool + summary, torch.tensor([False, True]))
        (tensor([0.9000, 0.0000]), tensor([ 0.5000, -0.5000]))
    """
    omitted = omitted if omitted.dtype == torch.bool else omitted > 0.5
    penalised = omitted | (total < 0)
    penalty = total if mode == "reference" else torch.where(total < 0, total, NO_CALL_PENALTY)
    return (
        torch.where(penalised, torch.zeros_like(tool_reward), tool_reward),
        torch.where(penalised, penalty.to(summary_reward.dtype), summary_reward),
    )


def segment_sum(token_values: Tensor, mask: Tensor) -> Tensor:
    """Sum of each row's values inside its segment: a segment's return, or its KL.

    Args:
        token_values: (B, T), float.
        mask: tokens of the segment, (B, T), bool.

    Returns:
        (B,), float32, reduced in float64; 0 for an absent segment.

    Example:
        >>> segment_sum(torch.tensor([[0.1, 5.0, 0.2]]), torch.tensor([[True, False, True]]))
        tensor([0.3000])
    """
    return torch.where(mask, token_values, 0.0).sum(1, dtype=torch.float64).float()


def _present(mask: Tensor) -> Tensor:
    return mask.amax(1) if mask.numel() else mask.any(1)  # on bool, amax is any at a third of the time


def _on_tokens(tool: Tensor, tool_mask: Tensor, summary: Tensor, summary_mask: Tensor) -> Tensor:
    tokens = torch.where(summary_mask, summary[:, None], 0.0)
    return torch.where(tool_mask, tool[:, None], tokens, out=tokens)  # no second (B, T) of floats


def _group_sum(values: Tensor, member_of: Tensor, count: Tensor) -> Tensor:
    return values.new_zeros(len(count)).index_add(0, member_of, values)


def _require_finite(values: Tensor, rows: Tensor) -> None:
    bad = (~values.isfinite()).nonzero().squeeze(1)
    if len(bad):
        first = int(bad[0])
        raise ValueError(
            f"reward of row {int(rows[first])} is {float(values[first])} ({len(bad)} of {len(values)} are not "
            f"finite); rewards must be finite, so mark a rollout that could not be scored as absent"
        )
