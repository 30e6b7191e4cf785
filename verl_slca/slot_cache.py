"""A key/value cache for transformers models whose rows live on their own: each with its own length.

A row can be copied and swapped, and a forward pass can read and write any set of rows, each at its own
position. `cpu_engine` keeps one running request per row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

STEP_TOKENS = 256


def whole_steps(tokens: int) -> int:
    """`tokens`, rounded up to a multiple of `STEP_TOKENS`: the lengths that the cache has and is read in."""
    return -(-tokens // STEP_TOKENS) * STEP_TOKENS


class _SlotLayer(CacheLayerMixin):
    """Keys and values of one layer: (slots, heads, tokens, head_dim), written in place at each row's own position."""

    is_sliding = False

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()
        self.cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        slots, tokens = self.cache.slots, self.cache.tokens
        self.keys = key_states.new_zeros(slots, key_states.shape[1], tokens, key_states.shape[3])
        self.values = value_states.new_zeros(slots, value_states.shape[1], tokens, value_states.shape[3])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        cache = self.cache
        self.keys[cache.write_rows, :, cache.write_positions] = key_states.transpose(1, 2)
        self.values[cache.write_rows, :, cache.write_positions] = value_states.transpose(1, 2)
        return self.keys[cache.read_rows, :, : cache.read_length], self.values[cache.read_rows, :, : cache.read_length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.read_length, 0

    def get_seq_length(self) -> int:
        return self.cache.read_length

    def get_max_cache_shape(self) -> int:
        return self.cache.tokens


class SlotCache(Cache):
    """A key/value cache whose rows are independent: each has its own length, and rows can be copied and swapped.

    `address` says which rows and positions the next forward pass writes and reads; the layers allocate
    themselves on the first pass, so any number and shape of heads works.
    """

    def __init__(self, layers: int, slots: int) -> None:
        self.slots = slots
        self.tokens = 0
        self.write_rows = self.write_positions = torch.empty(0, dtype=torch.long)
        self.read_rows: slice | torch.Tensor = slice(0, 0)
        self.read_length = 0
        super().__init__(layers=[_SlotLayer(self) for _ in range(layers)])

    def address(self, rows: slice | torch.Tensor, starts: torch.Tensor, width: int, read_length: int) -> torch.Tensor:
        """Position ids (B, width) int64 of the next pass, row b writing from starts[b] on."""
        positions = starts[:, None] + torch.arange(width)
        indices = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        self.write_rows = indices[:, None].expand_as(positions)
        self.write_positions = positions
        self.read_rows, self.read_length = rows, read_length
        return positions

    def reserve(self, tokens: int) -> None:
        """Room for `tokens` per row; grows in whole steps and keeps what is there."""
        if tokens <= self.tokens:
            return
        self.tokens = whole_steps(tokens)
        for tensor, layer, name in self._tensors():
            grown = tensor.new_zeros(*tensor.shape[:2], self.tokens, tensor.shape[3])
            grown[:, :, : tensor.shape[2]] = tensor
            setattr(layer, name, grown)

    def copy(self, source: int, target: int, length: int) -> None:
        """The first `length` positions of row `source` also in row `target`."""
        for tensor, _, _ in self._tensors():
            tensor[target, :, :length] = tensor[source, :, :length]

    def swap(self, a: int, b: int, length: int) -> None:
        """Rows `a` and `b` exchanged, as far as `length`."""
        pair, flipped = torch.tensor([a, b]), torch.tensor([b, a])
        for tensor, _, _ in self._tensors():
            tensor[pair, :, :length] = tensor[flipped, :, :length]

    def _tensors(self) -> Iterable[tuple[torch.Tensor, Any, str]]:
        for layer in self.layers:
            if layer.is_initialized:
                yield layer.keys, layer, "keys"
                yield layer.values, layer, "values"
