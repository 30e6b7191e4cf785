"""Segments, by turns and by the mask rule."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_slca.segments import last_run_start, mask_rule, turn_segments
from verl_slca.trajectory import Trajectory, Turn


def runs(mask: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for index, bit in enumerate(mask):
        if bit and (index == 0 or not mask[index - 1]):
            found.append([])
        if bit:
            found[-1].append(index)
    return found


masks = st.integers(1, 12).flatmap(lambda t: st.lists(st.lists(st.integers(0, 1), min_size=t, max_size=t), max_size=6))


@settings(deadline=None, max_examples=60)
@given(masks.filter(bool), st.sampled_from([torch.int64, torch.float32, torch.bool, torch.int32]))
def test_mask_rule_is_the_table_of_the_method(rows, dtype):
    tool, summary = mask_rule(torch.tensor(rows).to(dtype))
    starts = last_run_start(torch.tensor(rows).to(dtype))
    assert tool.dtype == summary.dtype == torch.bool
    for i, row in enumerate(rows):
        found = runs(row)
        assert tool[i].nonzero().flatten().tolist() == [index for run in found[:-1] for index in run]
        assert summary[i].nonzero().flatten().tolist() == (found[-1] if found else [])
        assert starts[i] == (found[-1][0] if found else len(row))


def test_mask_rule_takes_empty_batches_and_responses():
    assert mask_rule(torch.zeros(0, 5))[0].shape == (0, 5)
    assert mask_rule(torch.zeros(3, 0))[1].shape == (3, 0)
    assert last_run_start(torch.zeros(2, 0)).tolist() == [0, 0]


def test_a_rollout_cut_off_in_a_call_has_no_summary():
    turns = (Turn("call", span=(0, 2)), Turn("<tool_call>{", span=(3, 6)))
    tool, summary = turn_segments(Trajectory(turns, "length"), 6)
    assert tool.int().tolist() == [1, 1, 0, 1, 1, 1]
    assert not summary.any()
    by_mask, summary_by_mask = mask_rule(torch.tensor([[1, 1, 0, 1, 1, 1]]))
    assert by_mask.int().tolist() == [[1, 1, 0, 0, 0, 0]]
    assert summary_by_mask.int().tolist() == [[0, 0, 0, 1, 1, 1]]


def test_adjacent_turns_stay_apart():
    turns = (Turn("call", span=(0, 2)), Turn("answer", span=(2, 4)))
    tool, summary = turn_segments(Trajectory(turns, "answer"), 4)
    assert tool.int().tolist() == [1, 1, 0, 0]
    assert summary.int().tolist() == [0, 0, 1, 1]


def test_an_answer_alone_has_no_tool_segment_and_a_cut_keeps_what_is_left():
    tool, summary = turn_segments(Trajectory((Turn("answer", span=(0, 5)),), "answer"), 3)
    assert not tool.any()
    assert summary.tolist() == [True, True, True]


def test_nothing_learnable_gives_empty_segments():
    tool, summary = turn_segments(Trajectory((), "fault", "simulator_timeout"), 4)
    assert not tool.any()
    assert not summary.any()
