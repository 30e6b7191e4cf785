import asyncio
import sys
from pathlib import Path

import pytest

pytest.importorskip("verl")
pytestmark = pytest.mark.verl

sys.path.insert(0, str(Path(__file__).parent))
from tiny_model import build  # noqa: E402

PROMPT = [5, 6, 7, 8]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    from omegaconf import OmegaConf
    from verl.workers.config import HFModelConfig, RolloutConfig

    from verl_slca.adapters.cpu.server import TransformersServer

    path = build(tmp_path_factory.mktemp("model"), hidden=64, layers=1, vocabulary=300)
    attention = {"attn_implementation": "sdpa"}
    model_config = HFModelConfig(path=str(path), override_config=OmegaConf.create(attention))
    config = RolloutConfig(
        name="transformers", prompt_length=16, response_length=8, dtype="float32", max_num_seqs=8, seed=3
    )
    server = TransformersServer(config, model_config, replica_rank=0)
    yield server
    server.engine.close()


def generate(server, count: int = 1, prompt=PROMPT, **params):
    async def all_of_them():
        return await asyncio.gather(*(server.generate(prompt, dict(params), f"r{i}") for i in range(count)))

    return asyncio.run(all_of_them())


def test_a_completion_carries_log_probs_only_when_asked(server):
    assert generate(server)[0].log_probs is None
    output = generate(server, logprobs=True)[0]
    assert len(output.log_probs) == len(output.token_ids)
    assert output.stop_reason == "completed"


def test_the_default_limit_is_what_the_response_may_still_hold(server):
    assert len(generate(server, ignore_eos=True)[0].token_ids) == 8
    assert len(generate(server, prompt=[5] * 20, ignore_eos=True)[0].token_ids) == 4  # 16 + 8 - 20
    assert len(generate(server, max_tokens=3, ignore_eos=True)[0].token_ids) == 3


def test_an_explicit_seed_decides_the_completion(server):
    one, same, other = (generate(server, seed=seed)[0].token_ids for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_without_a_seed_a_group_is_the_same_set_in_every_run_and_another_in_every_step(server):
    groups = []
    for step in (1, 1, 2):
        asyncio.run(server.set_global_steps(step))
        groups.append(sorted(output.token_ids for output in generate(server, count=4)))
    assert groups[0] == groups[1]
    assert groups[0] != groups[2]
    assert len({tuple(tokens) for tokens in groups[0]}) == 4


def test_the_step_of_the_weights_is_on_every_completion(server):
    asyncio.run(server.set_global_steps(7))
    assert generate(server)[0].extra_fields["global_steps"] == 7


@pytest.mark.parametrize("params", [{"repetition_penalty": 1.1}, {"min_p": 0.1}])
def test_what_the_server_cannot_do_is_an_error(server, params):
    with pytest.raises(ValueError, match=next(iter(params))):
        generate(server, **params)


def test_images_are_refused(server):
    with pytest.raises(ValueError, match="text only"):
        asyncio.run(server.generate(PROMPT, {}, "r", image_data=["x"]))
