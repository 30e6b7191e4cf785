"""How the next token is drawn: settings, seeds, and logits to tokens with their log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one completion is sampled.

    Attributes:
        max_new_tokens: longest completion, in tokens, the stop token included.
        temperature: 0 takes the most likely token.
        top_p: smallest set of most likely tokens with at least this probability; 1 keeps all.
        top_k: number of most likely tokens; -1 or 0 keeps all.
        stop_token_ids: a completion ends with (and includes) the first of these.
        seed: of this request's own random numbers. Equal prompt, weights and seed give the equal completion
            whatever else is in the batch: bit for bit with `reproducible` kernels, else up to floating-point ties.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be >= 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")


def sample(logits: torch.Tensor, settings: Sequence[Sampling], uniforms: torch.Tensor) -> tuple[list[int], list[float]]:
    """One token per row and its log-probability, by inverting the cumulative distribution.

    Args:
        logits: (B, V) float32.
        settings: B sampling settings.
        uniforms: (B,) float64 in [0, 1), the row's random number.
    """
    temperature = torch.tensor([s.temperature if s.temperature > 0 else 1.0 for s in settings])
    log_probs = torch.log_softmax(logits / temperature[:, None], dim=-1)
    probs = log_probs.double().exp()
    filtered = [row for row, s in enumerate(settings) if s.top_p < 1 or s.top_k > 0]
    if filtered:
        probs[filtered] = _truncated(probs[filtered], [settings[row] for row in filtered])
    cumulative = probs.cumsum(dim=-1)
    tokens = torch.searchsorted(cumulative, (uniforms * cumulative[:, -1])[:, None], right=True)[:, 0]
    tokens = tokens.clamp(max=logits.shape[1] - 1)
    greedy = torch.tensor([s.temperature == 0 for s in settings])
    tokens = torch.where(greedy, logits.argmax(dim=-1), tokens)
    return tokens.tolist(), log_probs.gather(1, tokens[:, None])[:, 0].tolist()


def _truncated(probs: torch.Tensor, settings: Sequence[Sampling]) -> torch.Tensor:
    """`probs` (B, V) with every token outside top-k, and then outside top-p of the rest, set to 0."""
    ordered, index = probs.sort(dim=-1, descending=True, stable=True)
    vocabulary = probs.shape[1]
    top_k = torch.tensor([s.top_k if s.top_k > 0 else vocabulary for s in settings])
    ordered = ordered.masked_fill(torch.arange(vocabulary) >= top_k[:, None], 0)
    before = ordered.cumsum(dim=-1) - ordered
    top_p = torch.tensor([s.top_p for s in settings], dtype=probs.dtype)[:, None]
    ordered = ordered.masked_fill((before >= top_p * ordered.sum(dim=-1, keepdim=True)) & (top_p < 1), 0)
    return torch.zeros_like(probs).scatter(1, index, ordered)


def uniform_stream(seed: int, count: int) -> np.ndarray:
    """`count` numbers in [0, 1), float64, the same for the same seed on every machine."""
    return np.random.Generator(np.random.Philox(seed)).random(count)
