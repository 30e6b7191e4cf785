"""`place` and `read` are inverse, and neither trains on silence."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_slca.adapters.token_rewards import ZERO_MARK, place, read
from verl_slca.errors import ConfigError


def read_one(mask, token_rewards):
    """One rollout read inside a batch, beside another that carries a tool reward."""
    mask, other = torch.tensor(mask), torch.zeros(len(mask) + 4, dtype=torch.int64)
    other[:4] = torch.tensor([1, 0, 1, 1])
    rows = torch.stack([torch.nn.functional.pad(mask, (0, 4)), other])
    rewards = torch.stack([torch.nn.functional.pad(token_rewards, (0, 4)), place(other, 0.3, 0.4)])
    tool, summary, tool_mask, summary_mask = read(rewards, rows)
    assert (tool[1], summary[1]) == (torch.tensor(0.3), torch.tensor(0.4))
    return tool[0].item(), summary[0].item(), tool_mask[0, : len(mask)], summary_mask[0, : len(mask)]


# --- positions, by hand ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mask", "tool", "summary", "expected"),
    [
        pytest.param([1, 1, 0, 1, 1, 0, 0, 1, 1], 0.5, 0.75, [0, 0, 0, 0.5, 0, 0, 0, 0, 0.75], id="tools and answer"),
        pytest.param([0, 1, 1, 0], None, 0.75, [0, 0, 0.75, 0], id="answer only"),
        pytest.param([1, 1, 0, 1, 1], 0.5, None, [0, 0, 0, 0.5, 0], id="calls only"),
        pytest.param([1, 1, 0], 0.5, None, [0.5, 0, 0], id="one call, cut off"),
        pytest.param([1, 1, 0, 1], 0.5, None, [0.5, 0, 0, 0], id="cut off after one token of the second call"),
        pytest.param([1, 0, 1], 0.5, 0.75, [0.5, 0, 0.75], id="segments of one token"),
        pytest.param([1], None, 0.75, [0.75], id="an answer of one token"),
        pytest.param([0, 0], None, None, [0, 0], id="nothing learnable"),
        pytest.param([], None, None, [], id="empty"),
        pytest.param([1, 0, 1], 0.0, -0.0, [ZERO_MARK, 0, ZERO_MARK], id="zeros"),
    ],
)
def test_place_writes_where_the_contract_says(mask, tool, summary, expected):
    actual = place(mask, tool, summary)
    assert actual.tolist() == expected
    assert actual.dtype == torch.float32
    assert place(torch.tensor(mask), tool, summary).tolist() == expected


# --- inverse --------------------------------------------------------------------------------------------

rewards = st.sampled_from([0.0, -0.5, 1.0, ZERO_MARK, -ZERO_MARK, 1e-40]) | st.floats(-1e6, 1e6)
gap = st.integers(1, 3)


@st.composite
def rollouts(draw):
    """(mask, tool reward, summary reward, tool mask, summary mask), of any shape that has its own reading."""
    lengths = draw(st.lists(st.integers(1, 4), max_size=5))
    answered = bool(lengths) and draw(st.booleans())
    if lengths == [1]:
        answered = True
    mask, tool_mask, summary_mask = [0] * draw(st.integers(0, 2)), [], []
    for number, length in enumerate(lengths):
        mask += [0] * (draw(gap) if number else 0)
        is_answer = answered and number == len(lengths) - 1
        for segment_mask, mine in ((tool_mask, not is_answer), (summary_mask, is_answer)):
            segment_mask += [False] * (len(mask) - len(segment_mask)) + [mine] * length
        mask += [1] * length
    mask += [0] * draw(st.integers(0, 3))
    for segment_mask in (tool_mask, summary_mask):
        segment_mask += [False] * (len(mask) - len(segment_mask))
    tool = draw(rewards) if len(lengths) > answered else None
    return mask, tool, draw(rewards) if answered else None, tool_mask, summary_mask


@given(rollouts())
@settings(deadline=None, max_examples=200)
def test_read_gives_back_what_place_wrote(rollout):
    mask, tool, summary, tool_mask, summary_mask = rollout
    tool_read, summary_read, tool_mask_read, summary_mask_read = read_one(mask, place(mask, tool, summary))
    assert tool_mask_read.tolist() == tool_mask
    assert summary_mask_read.tolist() == summary_mask
    for written, found in ((tool, tool_read), (summary, summary_read)):
        exact = torch.tensor(written or 0.0, dtype=torch.float32).item()
        assert found == (exact if abs(exact) > ZERO_MARK else 0.0)


@given(st.lists(rollouts(), min_size=1, max_size=6))
@settings(deadline=None, max_examples=50)
def test_rows_of_a_batch_are_read_independently(batch):
    width = max(len(rollout[0]) for rollout in batch)
    mask, placed = torch.zeros(len(batch), width), torch.zeros(len(batch), width)
    for row, (row_mask, tool, summary, _, _) in enumerate(batch):
        mask[row, : len(row_mask)] = torch.tensor(row_mask)
        placed[row, : len(row_mask)] = place(row_mask, tool, summary)
    _, _, tool_mask, summary_mask = read(placed, mask.long())
    for row, (row_mask, _, _, *wanted) in enumerate(batch):
        assert [tool_mask[row, : len(row_mask)].tolist(), summary_mask[row, : len(row_mask)].tolist()] == wanted


# --- what place refuses ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mask", "tool", "summary", "message"),
    [
        ([1, 1], 0.5, 0.5, r"tool_reward is 0\.5, but there is no such segment: .* start at \[0\]"),
        ([1, 0, 1], None, 0.5, "tool_reward is None, but there is a segment"),
        ([1, 0, 1], None, None, "tool_reward is None, but there is a segment"),
        ([0, 0], 0.5, None, "no such segment"),
        ([0, 0], None, 0.5, "summary_reward is 0.5, but there is no such segment"),
        ([1], 0.5, None, "one token"),
        ([1, 0, 1], float("nan"), 0.5, "tool_reward is nan"),
        ([1, 0, 1], 0.5, float("inf"), "summary_reward is inf"),
        ([1, 0, 1], 0.5, 1e39, "finite as a float32"),
    ],
)
def test_place_refuses_what_could_not_be_read_back(mask, tool, summary, message):
    with pytest.raises(ValueError, match=message):
        place(mask, tool, summary)


def test_place_refuses_an_answer_that_follows_a_call_without_an_environment_token_between():
    with pytest.raises(ValueError, match="the answer starts at token 4, but the final run of learnable tokens at 3"):
        place([1, 1, 0, 1, 1, 1], 0.5, 0.5, answer_start=4)
    place([1, 1, 0, 1, 1, 1], 0.5, 0.5, answer_start=3)


# --- rewards that somebody else put on the tokens -------------------------------------------------------


def test_a_segments_return_is_the_sum_of_its_token_rewards_and_masked_tokens_do_not_count():
    mask = torch.tensor([[1, 1, 0, 1, 0, 1, 1]])
    tool, summary, *_ = read(torch.tensor([[0.1, 0.2, 9.0, -0.5, 9.0, 0.25, 0.5]]), mask)
    torch.testing.assert_close(tool, torch.tensor([-0.2]))
    torch.testing.assert_close(summary, torch.tensor([0.75]))


def test_a_reward_in_pieces_equals_the_reward_in_one():
    mask = torch.tensor([[1, 1, 0, 1], [1, 1, 0, 1]])
    tool, *_ = read(torch.tensor([[0.1, 0.2, 0.0, 1.0], [0.3, 0.0, 0.0, 1.0]]), mask)
    assert tool[0] == tool[1]


def test_one_reward_per_rollout_raises_and_says_what_to_configure():
    mask = torch.tensor([[1, 1, 0, 1, 1], [1, 0, 1, 0, 1], [1, 1, 1, 0, 0]])
    scalar = torch.tensor([[0.0, 0, 0, 0, 1.0], [0.0, 0, 0, 0, 0.5], [0.0, 0, 1.0, 0, 0]])
    with pytest.raises(
        ConfigError, match=r"tool reward is missing: 2 of 3 .*`tool_reward` and `summary_reward`.*place"
    ):
        read(scalar, mask)
    with pytest.raises(ConfigError, match="tool reward is missing"):
        read(scalar, mask, "mask_rule")


@pytest.mark.parametrize("mask", [[[1, 1, 0, 1, 1]], [[1, 1, 1, 0, 0]]])
def test_no_reward_at_all_raises(mask):
    with pytest.raises(ConfigError, match="tool reward is missing"):
        read(torch.zeros(1, 5), torch.tensor(mask))


def test_a_reward_on_masked_tokens_is_no_tool_reward():
    with pytest.raises(ConfigError, match="tool reward is missing"):
        read(torch.tensor([[0.0, 0.7, 0.0, 1.0]]), torch.tensor([[1, 0, 1, 1]]))


def test_a_batch_without_tool_runs_needs_no_tool_reward():
    tool, summary, tool_mask, _ = read(torch.tensor([[0.0, 0.5], [0.0, 0.0]]), torch.tensor([[1, 1], [0, 0]]))
    assert (tool.tolist(), summary.tolist(), tool_mask.any().item()) == ([0.0, 0.0], [0.5, 0.0], False)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (3, 5)])
def test_padding_has_no_segment(shape):
    tool, summary, tool_mask, summary_mask = read(torch.ones(shape), torch.zeros(shape, dtype=torch.int64))
    assert not torch.cat([tool, summary, tool_mask.flatten(), summary_mask.flatten()]).any()


def test_the_mask_rule_takes_the_final_run_for_the_answer_whatever_it_carries():
    mask = torch.tensor([[1, 1, 0, 1, 1]])
    placed = place(mask[0], 0.5, None)
    assert read(placed[None], mask).tool.tolist() == [0.5]
    other = torch.stack([placed, place(mask[0], 0.1, 0.2)])
    assert read(other, mask.repeat(2, 1), "mask_rule").summary.tolist() == [0.5, torch.tensor(0.2).item()]


def test_a_token_reward_that_is_not_finite_raises_with_row_and_token():
    rewards = torch.tensor([[0.5, 0, 0, 0.5], [0.5, 0, 0, float("nan")]])
    with pytest.raises(ValueError, match=r"summary_reward of row 1 \(token 3\) is missing"):
        read(rewards, torch.tensor([[1, 1, 0, 1], [1, 1, 0, 1]]))
