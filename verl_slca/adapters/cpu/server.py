"""The Ray actor behind ``rollout.name=transformers``: verl's token-in, token-out server over `GenerationEngine`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import HFModelConfig, RolloutConfig
from verl.workers.rollout.replica import TokenOutput

from verl_slca.cpu_engine import GenerationEngine, Sampling
from verl_slca.seeds import derived_seed

STOP_REASONS = {"stop": "completed", "length": "completed", "abort": "aborted"}


class TransformersServer:
    """Generates for one replica and takes new weights after every update.

    Each request has random numbers of its own, from the `seed` in its sampling parameters. Without one the
    seed comes from `rollout.seed`, the training step, the prompt, and how many requests with that prompt came
    before in this step: whatever order they arrive in, a group gets the same set of rollouts.
    """

    def __init__(self, config: Any, model_config: Any, replica_rank: int) -> None:
        self.config: RolloutConfig = omega_conf_to_dataclass(config)
        self.model_config: HFModelConfig = omega_conf_to_dataclass(model_config, dataclass_type=HFModelConfig)
        self.replica_rank = replica_rank
        self.global_steps: int | None = None
        self._seen: Counter[bytes] = Counter()
        model = AutoModelForCausalLM.from_pretrained(
            self.model_config.local_path,
            dtype=getattr(torch, self.config.dtype),
            attn_implementation="sdpa",
            trust_remote_code=self.model_config.trust_remote_code,
        )
        self.max_length = self.config.max_model_len or self.config.prompt_length + self.config.response_length
        self.engine = GenerationEngine(model, self.config.max_num_seqs, self.max_length)
        self.stop_token_ids = _stop_token_ids(model, self.model_config.tokenizer)

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        image_data: list[Any] | None = None,
        video_data: list[Any] | None = None,
        **kwargs: Any,
    ) -> TokenOutput:
        """The completion of `prompt_ids`.

        Raises:
            ValueError: a sampling parameter or an input that this server has no support for.
        """
        if image_data or video_data:
            raise ValueError("rollout.name=transformers generates from text only; use rollout.name=vllm for images")
        sampling = self._sampling(list(prompt_ids), dict(sampling_params))
        wants_log_probs = bool(sampling_params.get("logprobs"))
        completion = await self.engine.generate(prompt_ids, sampling, key=request_id)
        return TokenOutput(
            token_ids=completion.token_ids,
            log_probs=completion.log_probs if wants_log_probs else None,
            stop_reason=STOP_REASONS[completion.stop],
            extra_fields={"global_steps": self.global_steps, "num_cached_tokens": completion.cached_tokens},
        )

    def _sampling(self, prompt: list[int], params: dict[str, Any]) -> Sampling:
        params.pop("logprobs", None)
        if params.pop("repetition_penalty", 1.0) not in (None, 1.0):
            raise ValueError("rollout.name=transformers has no repetition_penalty; leave it at 1.0")
        room = self.config.prompt_length + self.config.response_length - len(prompt)
        limit = params.pop("max_tokens", None) or params.pop("max_new_tokens", None)
        seed = params.pop("seed", None)
        if seed is None:
            name = repr((self.global_steps, prompt)).encode()
            seed = derived_seed(self.config.seed, self.replica_rank, name, self._seen[name])
            self._seen[name] += 1
        ignore_eos = params.pop("ignore_eos", self.config.ignore_eos)
        stop = tuple(params.pop("stop_token_ids", None) or ()) + (() if ignore_eos else self.stop_token_ids)
        sampling = Sampling(
            max_new_tokens=max(1, limit or min(self.config.response_length, room)),
            temperature=params.pop("temperature", 1.0),
            top_p=params.pop("top_p", 1.0),
            top_k=params.pop("top_k", -1),
            stop_token_ids=stop,
            seed=seed,
        )
        if params:
            raise ValueError(f"rollout.name=transformers: unknown sampling parameters {', '.join(sorted(params))}")
        return sampling

    async def update_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Some of the model's weights replaced; see `set_global_steps` for the end of an update."""
        self.engine.update_weights(weights.items())

    async def set_global_steps(self, global_steps: int) -> None:
        """The training step whose weights are loaded now."""
        self.global_steps = global_steps
        self._seen.clear()

    async def abort_all_requests(self, reject_request: bool = False) -> dict[str, Any]:
        """Running requests ended with what they have; new ones wait for `resume_generation`."""
        return {"aborted_count": self.engine.pause(), "request_ids": []}

    async def abort_request(self, request_id: str) -> dict[str, Any]:
        """One request ended with what it has."""
        return {"aborted": bool(self.engine.abort(request_id)), "request_id": request_id}

    async def resume_generation(self) -> None:
        """New requests are served again."""
        self.engine.resume()

    async def clear_kv_cache(self) -> None:
        """Nothing computed so far is reused."""
        self.engine.clear_cache()

    async def ready(self) -> int:
        """The replica's rank, once the model is loaded."""
        return self.replica_rank

    async def wake_up(self, tags: list[str] | None = None) -> None:
        """Nothing: there is no device memory to take back."""

    async def sleep(self) -> None:
        """Nothing: there is no device memory to free."""

    async def release_kv_cache(self) -> None:
        """Nothing: there is no device memory to free."""

    async def resume_kv_cache(self) -> None:
        """Nothing: there is no device memory to take back."""

    async def start_profile(self, **kwargs: Any) -> None:
        """Nothing: the server has no profiler."""

    async def stop_profile(self) -> None:
        """Nothing: the server has no profiler."""


def _stop_token_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """End-of-sequence tokens by the generation config and by the tokenizer."""
    configured = model.generation_config.eos_token_id
    ids = configured if isinstance(configured, list) else [configured]
    return tuple(sorted({token for token in [*ids, tokenizer.eos_token_id] if token is not None}))
