"""The estimators as the installed verl calls them."""

import numpy as np
import pytest
import torch

pytest.importorskip("verl")

from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from verl_slca import advantages
from verl_slca.adapters import estimators
from verl_slca.adapters.token_rewards import place
from verl_slca.errors import ConfigError

pytestmark = pytest.mark.verl

MASK = torch.tensor(
    [
        [1, 1, 0, 1, 1, 0],  # g: call, answer
        [1, 0, 1, 1, 0, 0],  # g: call, answer
        [1, 1, 1, 0, 0, 0],  # g: answer only
        [1, 1, 0, 1, 1, 1],  # g: cut off in its second call
        [0, 0, 0, 0, 0, 0],  # padding
    ]
)
UIDS = np.array(["g", "g", "g", "g", "pad-1"], dtype=object)
REWARDS = [(1.0, 0.25), (0.5, 0.75), (None, -0.5), (0.0, None), (None, None)]
PLACED = torch.stack([place(mask, *pair) for mask, pair in zip(MASK, REWARDS, strict=True)])


def by_verl(name, token_rewards=PLACED, **algorithm):
    """Advantages as verl's trainer computes them, through its registry and a struct config."""
    config = OmegaConf.create({"adv_estimator": name, "gamma": 1.0, "use_kl_in_reward": False, **algorithm})
    OmegaConf.set_struct(config, True)
    batch = TensorDict({"token_level_rewards": token_rewards.clone(), "response_mask": MASK}, batch_size=len(MASK))
    data = DataProto(batch=batch, non_tensor_batch={"uid": UIDS})
    keys = [f"{uid}_{row}_0" for row, uid in enumerate(UIDS)]
    data = compute_advantage_for_multi_trajectories(data, keys, adv_estimator=name, config=config)
    assert torch.equal(data.batch["advantages"], data.batch["returns"])
    return data.batch["advantages"]


def close(actual, expected):
    torch.testing.assert_close(actual, torch.tensor(expected), atol=1e-4, rtol=0)


def test_slca_gives_each_segment_its_own_advantage():
    # tool 1, 0.5, 0: mean 0.5, std 0.5. summary 0.25, 0.75, -0.5: mean 1/6, std sqrt(19/48) = 0.62915
    close(
        by_verl("slca"),
        [
            [1.0, 1.0, 0.0, 0.1325, 0.1325, 0.0],
            [0.0, 0.0, 0.9272, 0.9272, 0.0, 0.0],
            [-1.0597, -1.0597, -1.0597, 0.0, 0.0, 0.0],
            [-1.0, -1.0, 0.0, -1.0, -1.0, -1.0],
            [0.0] * 6,
        ],
    )


def test_slca_reads_its_weights_and_verls_std_switch():
    settings = {"slca": {"tool_weight": 2, "summary_weight": 0.5}, "norm_adv_by_std_in_grpo": False}
    close(by_verl("slca", **settings)[0], [1.0, 1.0, 0.0, 0.5 * (0.25 - 1 / 6), 0.5 * (0.25 - 1 / 6), 0.0])


def test_slca_under_the_mask_rule_takes_the_cut_off_call_for_the_answer():
    # the mark 0 lies on the first token of row 3's last run: its tool return is 0 and its summary return 0
    actual = by_verl("slca", slca={"segments": "mask_rule"})
    summary = advantages.group_normalise(torch.tensor([0.25, 0.75, -0.5, 0.0]), torch.ones(4).bool(), torch.zeros(4))
    close(actual[3], [-1.0, -1.0, 0.0, *[summary[3].item()] * 3])


def test_toolpo_counts_a_rollout_without_an_answer_as_unsolved():
    # outcomes 0.25, 0.75, -0.5, 0: mean 0.125, squares 1/64 + 25/64 + 25/64 + 1/64 = 52/64, std sqrt(52/192)
    std = (52 / 192) ** 0.5
    actual = by_verl("slca_toolpo", slca={"tool_weight": 0.5})
    close(actual[3], [-0.125 / std - 0.5, -0.125 / std - 0.5, 0.0, *[-0.125 / std - 0.5] * 3])
    close(actual[0], [0.125 / std + 0.5, 0.125 / std + 0.5, 0.0, 0.125 / std, 0.125 / std, 0.0])
    assert not actual[4].any()


def test_rltr_trains_planner_tokens_and_the_answers_that_were_given_instead_of_a_call():
    # planner 1, 0.5, -0.5, 0: mean 0.25, squares 9/16 + 1/16 + 9/16 + 1/16 = 20/16, std sqrt(20/48)
    std = (20 / 48) ** 0.5
    actual = by_verl("slca_rltr")
    close(actual[0], [0.75 / std, 0.75 / std, 0.0, 0.0, 0.0, 0.0])
    close(actual[2], [-0.75 / std] * 3 + [0.0] * 3)
    close(by_verl("slca_rltr", slca={"segments": "mask_rule"})[2], [0.0] * 6)


def test_mixed_uids_make_groups():
    assert estimators.group_ids(np.array([3, "a", 3, "b", "a"], dtype=object)).tolist() == [0, 1, 0, 2, 1]


@pytest.mark.parametrize("name", ["slca", "slca_toolpo", "slca_rltr"])
def test_a_scalar_reward_stops_training_and_says_what_to_configure(name):
    scalar = torch.zeros(MASK.shape)
    scalar[0, 4] = scalar[2, 2] = 1.0
    with pytest.raises(ConfigError, match="tool_reward"):
        by_verl(name, scalar)


@pytest.mark.parametrize("name", ["slca", "slca_toolpo", "slca_rltr"])
def test_an_unknown_key_is_refused(name):
    with pytest.raises(ConfigError, match=r"algorithm\.slca\.tool_wieght: unknown key.*'tool_weight'"):
        by_verl(name, slca={"tool_wieght": 1.0})


@pytest.mark.parametrize("name", ["slca", "slca_toolpo", "slca_rltr"])
def test_kl_in_the_reward_is_refused_where_it_hides_the_marks(name):
    with pytest.raises(ConfigError, match="use_kl_in_reward=false"):
        by_verl(name, use_kl_in_reward=True)


def test_under_the_mask_rule_each_segments_kl_joins_its_return():
    mask, placed = MASK[:2], PLACED[:2]
    with_kl = placed - 0.01 * mask
    config = {"use_kl_in_reward": True, "slca": {"segments": "mask_rule"}}
    actual, _ = estimators.slca(with_kl, mask, UIDS[:2], config)
    # tool 1 - 0.02 and 0.5 - 0.01, summary 0.25 - 0.02 and 0.75 - 0.02
    z = 0.5**0.5
    close(actual, [[z, z, 0.0, -z, -z, 0.0], [-z, 0.0, z, z, 0.0, 0.0]])
    with pytest.raises(ConfigError, match="ToolPO"):
        estimators.slca_toolpo(with_kl, mask, UIDS[:2], config)


def test_a_reward_that_is_not_finite_raises():
    broken = PLACED.clone()
    broken[1, 3] = float("nan")
    with pytest.raises(ValueError, match=r"summary_reward of row 1 \(token 3\) is missing or not finite"):
        by_verl("slca", broken)


def test_the_inputs_stay_as_they_were():
    rewards, mask = PLACED.clone(), MASK.clone()
    estimators.slca(rewards, mask, UIDS)
    assert torch.equal(rewards, PLACED)
    assert torch.equal(mask, MASK)


def test_rows_without_a_learnable_token_are_warned_of_under_any_trainer(caplog):
    by_verl("slca")
    assert [record.getMessage()[:45] for record in caplog.records] == ["1 of the 5 rows of this step have no learnabl"]
