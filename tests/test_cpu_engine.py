import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from verl_slca.cpu_engine import Completion, GenerationEngine
from verl_slca.errors import PolicyServerFault
from verl_slca.reproducible import use_reproducible_kernels
from verl_slca.sampling import Sampling, sample
from verl_slca.seeds import derived_seed

SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256,
}  # fmt: skip
PROMPT = list(range(3, 23))


def tiny_model(seed: int = 0, kind: str = "qwen2") -> torch.nn.Module:
    config, cls = {
        "qwen2": (Qwen2Config, Qwen2ForCausalLM),
        "qwen3": (Qwen3Config, Qwen3ForCausalLM),
        "llama": (LlamaConfig, LlamaForCausalLM),
    }[kind]
    torch.manual_seed(seed)
    model = cls(config(**SIZES))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)  # peaked distributions: a wrong context shows
    return model.eval()


@pytest.fixture
def engine() -> Iterator[GenerationEngine]:
    engine = GenerationEngine(tiny_model(), max_rows=6, max_length=200)
    yield engine
    engine.close()


def actor_log_probs(model: torch.nn.Module, prompt: list[int], tokens: list[int], temperature: float = 1.0) -> list:
    """What verl's actor computes: one full forward pass, no cache."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].float()
    log_probs = torch.log_softmax(logits / temperature, dim=-1)
    return log_probs.gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()


def assert_agrees(model: torch.nn.Module, prompt: list[int], completion: Completion, temperature: float = 1.0) -> None:
    expected = actor_log_probs(model, prompt, completion.token_ids, temperature)
    assert completion.log_probs == pytest.approx(expected, abs=3e-4)


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_are_those_of_a_full_forward_pass(kind, temperature):
    model = tiny_model(kind=kind)
    engine = GenerationEngine(model, max_rows=4, max_length=100)
    completion = engine.submit(PROMPT, Sampling(30, temperature, top_p=0.9, top_k=20, seed=1)).result()
    engine.close()
    assert completion.stop == "length"
    assert len(completion.token_ids) == 30
    assert_agrees(model, PROMPT, completion, temperature)


def test_a_greedy_completion_is_the_argmax_of_each_step(engine):
    completion = engine.submit(PROMPT, Sampling(10, temperature=0)).result()
    tokens = list(PROMPT)
    for _ in range(10):
        with torch.no_grad():
            tokens.append(int(engine.model(input_ids=torch.tensor([tokens])).logits[0, -1].argmax()))
    assert completion.token_ids == tokens[len(PROMPT) :]


def test_a_completion_does_not_depend_on_the_batch_it_ran_in(engine):
    alone = engine.submit(PROMPT, Sampling(20, seed=7)).result()
    crowd = [engine.submit(PROMPT[: 5 + i], Sampling(20, seed=i)) for i in range(10)]
    together = engine.submit(PROMPT, Sampling(20, seed=7))
    assert together.result().token_ids == alone.token_ids
    assert len({tuple(future.result().token_ids) for future in crowd}) == 10


def conversations(max_rows: int, pause: float) -> list[list[float]]:
    """Log-probabilities of 8 conversations of two turns, sent in some order at some pace."""
    torch.manual_seed(0)
    sizes = SIZES | {"hidden_size": 128, "intermediate_size": 208, "head_dim": 32, "max_position_embeddings": 1024}
    engine = GenerationEngine(Qwen2ForCausalLM(Qwen2Config(**sizes | {"num_attention_heads": 4})), max_rows, 1024)
    drawn, rng = random.Random(0), random.Random(pause)
    prompts = [drawn.choices(range(64), k=drawn.randrange(5, 400)) for _ in range(4) for _ in range(2)]
    order = rng.sample(range(8), 8)
    first, second = {}, {}
    for i in order:
        first[i] = engine.submit(prompts[i], Sampling(20, seed=i))
        time.sleep(rng.random() * pause)
    for i in order:
        again = prompts[i] + first[i].result().token_ids + [5, 6]
        second[i] = engine.submit(again, Sampling(20, seed=i))
    log_probs = [first[i].result().log_probs + second[i].result().log_probs for i in range(8)]
    engine.close()
    return log_probs


def test_not_one_bit_of_a_log_prob_depends_on_the_batch():
    if not use_reproducible_kernels():
        pytest.skip("this processor has no kernels that sum in one order for every number of rows")
    # In a process of its own: MKL and OpenMP read their settings once.
    code = (
        "from test_cpu_engine import conversations as c; alone = c(1, 0.0); "
        "assert c(8, 0.0) == alone; assert c(8, 0.02) == alone; assert c(3, 0.01) == alone"
    )
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path]),
    }
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_the_rollouts_of_one_prompt_share_its_prefill(engine):
    futures = [engine.submit(PROMPT, Sampling(20, seed=i)) for i in range(4)]
    completions = [future.result() for future in futures]
    assert [c.cached_tokens for c in completions] == [0, 19, 19, 19]
    for completion in completions:
        assert_agrees(engine.model, PROMPT, completion)


def test_the_next_turn_of_a_conversation_reuses_all_but_its_new_tokens(engine):
    first = engine.submit(PROMPT, Sampling(10, seed=0)).result()
    prompt = PROMPT + first.token_ids + [5, 6, 7]
    second = engine.submit(prompt, Sampling(10, seed=1)).result()
    assert second.cached_tokens == 29  # 20 prompt tokens and 9 of the 10 sampled: the last was never an input
    assert_agrees(engine.model, prompt, second)


def test_nothing_cached_survives_new_weights(engine):
    other = tiny_model(seed=1)
    engine.submit(PROMPT, Sampling(10)).result()
    engine.update_weights(other.state_dict().items())
    completion = engine.submit(PROMPT, Sampling(10)).result()
    assert completion.cached_tokens == 0
    assert_agrees(other, PROMPT, completion)


def test_a_running_request_goes_on_under_new_weights(engine):
    other = tiny_model(seed=1)
    future = engine.submit(PROMPT, Sampling(150, seed=3))
    while engine.generated_tokens < 20:
        time.sleep(0.001)
    engine.update_weights(other.state_dict().items())
    completion = future.result()
    assert completion.log_probs[-20:] == pytest.approx(
        actor_log_probs(other, PROMPT, completion.token_ids)[-20:], abs=3e-4
    )


def test_a_new_request_joins_between_steps(engine):
    long = engine.submit(PROMPT, Sampling(180))
    short = engine.submit(PROMPT[:3], Sampling(2))
    assert len(short.result().token_ids) == 2
    assert not long.done()


def test_a_stop_token_ends_a_completion_and_belongs_to_it(engine):
    free = engine.submit(PROMPT, Sampling(20, seed=2)).result().token_ids
    stop = free[7]
    stopped = engine.submit(PROMPT, Sampling(20, seed=2, stop_token_ids=(stop, 9999))).result()
    assert stopped.stop == "stop"
    assert stopped.token_ids == free[: free.index(stop) + 1]


def test_more_requests_than_rows_wait_for_their_turn(engine):
    futures = [engine.submit(PROMPT, Sampling(3, seed=i)) for i in range(30)]
    assert all(len(future.result().token_ids) == 3 for future in futures)


def test_abort_ends_one_request_and_pause_ends_all_and_holds_the_rest(engine):
    one = engine.submit(PROMPT, Sampling(180), key="one")
    two = engine.submit(PROMPT, Sampling(180, seed=1), key="two")
    assert engine.abort("one") == 1
    assert one.result().stop == "abort"
    assert engine.pause() == 1
    assert two.result().stop == "abort"
    held = engine.submit(PROMPT, Sampling(2))
    assert not held.done()
    engine.resume()
    assert held.result().stop == "length"


def test_a_cancelled_waiter_does_no_harm(engine):
    engine.pause()
    cancelled = engine.submit(PROMPT, Sampling(2))
    assert cancelled.cancel()
    kept = engine.submit(PROMPT, Sampling(2))
    engine.resume()
    assert len(kept.result().token_ids) == 2


def test_a_failing_model_fails_its_requests_as_infrastructure(engine, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    monkeypatch.setattr(engine.model, "forward", lambda **_: 1 / 0)
    with pytest.raises(PolicyServerFault, match="ZeroDivisionError"):
        engine.submit(PROMPT, Sampling(2)).result()
    with pytest.raises(PolicyServerFault):
        engine.submit(PROMPT, Sampling(2))


def test_weights_of_another_shape_or_name_are_refused_and_the_engine_lives_on(engine):
    with pytest.raises(ValueError, match="lm_head"):
        engine.update_weights([("lm_head.weight", torch.zeros(1, 1))])
    with pytest.raises(KeyError):
        engine.update_weights([("no_such.weight", torch.zeros(1))])
    assert engine.submit(PROMPT, Sampling(1)).result().stop == "length"


@pytest.mark.parametrize("prompt", [[], [1] * 200])
def test_a_prompt_that_cannot_be_continued_is_refused(engine, prompt):
    with pytest.raises(ValueError, match=r"allowed are 1 to 199"):
        engine.submit(prompt, Sampling(1))


async def test_generate_is_a_coroutine(engine):
    both = await asyncio.gather(*(engine.generate(PROMPT, Sampling(4, seed=i)) for i in range(2)))
    assert [len(c.token_ids) for c in both] == [4, 4]


def test_sliding_window_models_are_refused():
    config = Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=0)
    with pytest.raises(ValueError, match="sliding_attention"):
        GenerationEngine(Qwen2ForCausalLM(config))


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**31))
def test_any_mix_of_conversations_gives_the_log_probs_of_full_passes(seed):
    rng = np.random.default_rng(seed)
    model = tiny_model()
    engine = GenerationEngine(model, max_rows=4, max_length=120)
    system = rng.integers(3, 60, 10).tolist()
    prompts = [system[: rng.integers(1, 10)] + rng.integers(3, 60, rng.integers(1, 12)).tolist() for _ in range(3)]
    for _ in range(3):
        chosen = [prompts[i] for i in rng.integers(0, len(prompts), 7)]
        futures = [engine.submit(p, Sampling(int(rng.integers(1, 9)), seed=i)) for i, p in enumerate(chosen)]
        for prompt, future in zip(chosen, futures, strict=True):
            assert_agrees(model, prompt, future.result())
        longer = [p + f.result().token_ids + [3, 4] for p, f in zip(chosen[:3], futures[:3], strict=True)]
        prompts = longer + prompts[:1]
    engine.close()


def test_sampling_inverts_the_cumulative_distribution():
    logits = torch.tensor([0.5, 0.3, 0.2]).log().repeat(4, 1)
    uniforms = torch.tensor([0.0, 0.49, 0.51, 0.99], dtype=torch.float64)
    tokens, log_probs = sample(logits, [Sampling(1)] * 4, uniforms)
    assert tokens == [0, 0, 1, 2]
    assert log_probs == pytest.approx(np.log([0.5, 0.5, 0.3, 0.2]).tolist())


def test_top_k_and_top_p_leave_out_the_tail_and_report_full_log_probs():
    logits = torch.tensor([0.2, 0.5, 0.3]).log().repeat(3, 1)
    uniforms = torch.full((3,), 0.999, dtype=torch.float64)
    choices = [Sampling(1, top_k=1), Sampling(1, top_p=0.5), Sampling(1, top_p=0.51)]
    tokens, log_probs = sample(logits, choices, uniforms)
    assert tokens == [1, 1, 2]  # 0.5 alone; 0.5 reaches top_p 0.5; 0.51 needs the token with 0.3 too
    assert log_probs == pytest.approx(np.log([0.5, 0.5, 0.3]).tolist())


@pytest.mark.parametrize("bad", [{"max_new_tokens": 0}, {"temperature": -1.0}, {"top_p": 0.0}])
def test_impossible_settings_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Sampling(**{"max_new_tokens": 1, **bad})


def test_a_derived_seed_is_the_same_in_every_process():
    assert derived_seed(42, "row-7", 0, 1) == 2002399577210495215
