"""A model's family by its name, and the warning when models that should differ do not."""

import json

import pytest

from verl_slca.model_families import families_of, family_warning


@pytest.mark.parametrize(
    ("name", "families"),
    [
        ("Qwen/Qwen2.5-3B-Instruct", {"qwen"}),
        ("Qwen3-235B-A22B-Instruct-2507", {"qwen"}),
        ("meta-llama/Llama-3.1-8B", {"llama"}),
        ("mistralai/Mixtral-8x7B", {"mistral"}),
        ("openai/gpt-oss-120b", {"gpt"}),
        ("o3-mini", {"gpt"}),
        ("google/gemma-3-27b-it", {"gemma"}),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", {"deepseek", "llama"}),
        ("zai-org/GLM-4.6", {"glm"}),
        ("microsoft/Phi-4", {"phi"}),
        ("sophia", set()),
        ("outputs/rl/model", set()),
        ("video3", set()),
        ("", set()),
    ],
)
def test_a_name_says_its_family(name, families):
    assert families_of(name) == families


def test_a_local_checkpoint_says_its_family_in_its_config(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    assert families_of(str(tmp_path)) == {"qwen"}
    (tmp_path / "config.json").write_text("[not json")
    assert families_of(str(tmp_path)) == set()


def test_models_of_one_family_are_warned_of_pair_by_pair():
    warning = family_warning("Qwen/Qwen2.5-3B", judge="Qwen3-235B", simulator="Qwen3-32B")
    assert warning is not None
    assert "policy (Qwen/Qwen2.5-3B) and judge (Qwen3-235B): qwen" in warning
    assert "judge (Qwen3-235B) and simulator (Qwen3-32B): qwen" in warning


@pytest.mark.parametrize(
    ("judge", "simulator"), [(None, None), ("gpt-oss-120b", None), ("gpt-oss-120b", "deepseek-v3"), ("mine", "mine")]
)
def test_other_families_and_unknown_ones_are_not(judge, simulator):
    assert family_warning("Qwen/Qwen2.5-3B", judge, simulator) is None
