"""Attention for decoding with grouped query heads, without copying keys and values once per query head.

transformers' own `sdpa` repeats the cached keys and values for every query head of a group, which on a CPU
is most of the time of a decoding step. Here the query heads of a group are taken as further query positions
of their one key head: the same numbers, nothing repeated.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "slca_grouped"


def use_grouped_attention(model: PreTrainedModel) -> None:
    """`model` set to this attention, where its architecture lets the attention be chosen; else it keeps its own."""
    AttentionInterface.register(NAME, grouped_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    if model._can_set_attn_implementation():
        model.set_attn_implementation(NAME)


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention output (B, Q, H, D), and None for the weights.

    Args:
        module: the attention layer (unused, part of transformers' interface).
        query: (B, H, Q, D).
        key: (B, K, L, D); each of the K key heads serves H / K consecutive query heads.
        value: as `key`.
        attention_mask: (B, 1, Q, L) bool, True where a query may look; None is left to transformers.
        scaling: factor on the scores; None is 1 / sqrt(D).
    """
    if attention_mask is None:
        return sdpa_attention_forward(module, query, key, value, None, scaling=scaling, **kwargs)
    batch, heads, length, width = query.shape
    group = heads // key.shape[1]
    folded = query.reshape(batch, key.shape[1], group * length, width)
    mask = attention_mask if length == 1 else attention_mask.repeat(1, 1, group, 1)
    output = scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scaling)
    return output.view(batch, heads, length, -1).transpose(1, 2).contiguous(), None
