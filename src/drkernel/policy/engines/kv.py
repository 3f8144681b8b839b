"""Keys and values of the sequences that decode together, and attention over them at ragged lengths.

A slot is a fixed stretch of memory for one sequence. Attention runs per sequence over its own length, rounded up to a
bucket. Neighbouring slots with the same bucket share one batched product, which treats every (sequence, head) alone, so
that a sequence's result does not depend on its neighbours (tests/policy/test_engine.py holds it to the bit).

On a CPU reading keys and values is most of the time beyond 200 tokens. Keys lie transposed, so that both products of a
decode step stream through memory; that takes 70 % of the time of scaled_dot_product_attention.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PretrainedConfig

BUCKET = 64
"""Decode attention reads keys up to the next multiple of this; more makes fewer calls and more waste."""


class Slots:
    """Memory of `count` sequences: keys [layers, count, Hkv, D, context], values [layers, count, Hkv, context, D]."""

    def __init__(self, config: PretrainedConfig, count: int, context: int, dtype: torch.dtype, device: torch.device):
        heads = config.num_key_value_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        context = -(-context // BUCKET) * BUCKET
        shape = (config.num_hidden_layers, count, heads)
        # Zeros, not empty: what lies beyond a sequence's end gets weight 0, and 0 times NaN would not be 0.
        self.keys = torch.zeros(*shape, size, context, dtype=dtype, device=device)
        self.values = torch.zeros(*shape, context, size, dtype=dtype, device=device)
        self.mask = torch.full((count, 1, 1, context), -torch.inf, dtype=dtype, device=device)
        self.count = count
        self._views: dict[tuple[int, int, int], list[tuple[Tensor, Tensor]]] = {}

    def take(self, slot: int, length: int) -> tuple[Tensor, Tensor]:
        """A copy of a sequence's first `length` keys and values."""
        return self.keys[:, slot, :, :, :length].clone(), self.values[:, slot, :, :length].clone()

    def put(self, slot: int, saved: tuple[Tensor, Tensor] | None) -> int:
        """Begins a sequence in a slot with what `take` saved, or with nothing; returns its length."""
        length = 0 if saved is None else saved[0].shape[-1]
        if saved is not None:
            self.keys[:, slot, :, :, :length], self.values[:, slot, :, :length] = saved
        self.mask[slot] = -torch.inf
        self.mask[slot, ..., :length] = 0
        return length

    def views(self, first: int, last: int, bucket: int) -> list[tuple[Tensor, Tensor]]:
        """Per layer the keys and values of slots first:last up to `bucket`; kept, since making views costs time."""
        key = (first, last, bucket)
        if key not in self._views:
            if len(self._views) > 2048:
                self._views.clear()
            pairs = zip(self.keys, self.values, strict=True)
            self._views[key] = [(k[first:last, ..., :bucket], v[first:last, :, :bucket]) for k, v in pairs]
        return self._views[key]


class Prefill:
    """Layout of prompt tokens: segment (slot, start, n) holds tokens start : start + n of the sequence in that slot.

    Rows beyond the segments are padding; nothing is written for them and their result is 0.
    """

    def __init__(self, slots: Slots, segments: list[tuple[int, int, int]]):
        self.slots = slots
        self.segments = segments
        self.masks = [
            torch.ones(n, start + n, dtype=torch.bool, device=slots.keys.device).tril(start) if start else None
            for _, start, n in segments
        ]
        for slot, start, n in segments:
            slots.mask[slot, ..., start : start + n] = 0

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        keys, values = self.slots.keys[layer], self.slots.values[layer]
        out = torch.zeros_like(query)
        row = 0
        for (slot, start, n), mask in zip(self.segments, self.masks, strict=True):
            end = start + n
            keys[slot, :, :, start:end] = key[row : row + n].permute(1, 2, 0)
            values[slot, :, start:end] = value[row : row + n].transpose(0, 1)
            result = F.scaled_dot_product_attention(
                query[row : row + n].transpose(0, 1).unsqueeze(0),
                keys[slot : slot + 1, ..., :end].transpose(2, 3).contiguous(),
                values[slot : slot + 1, :, :end],
                attn_mask=mask,
                is_causal=mask is None,
                scale=scale,
                enable_gqa=query.shape[1] != key.shape[1],
            )
            out[row : row + n] = result[0].transpose(0, 1)
            row += n
        return out


class Decode:
    """Layout of one new token per sequence: row i is the token at positions[i] of the sequence in slot used[i].

    Slots come in ascending order; rows beyond them are padding.
    """

    def __init__(self, slots: Slots, used: list[int], positions: list[int]):
        self.slots = slots
        device = slots.keys.device
        self.used, self.positions = torch.tensor(used, device=device), torch.tensor(positions, device=device)
        slots.mask[self.used, 0, 0, self.positions] = 0
        self.runs = []
        start = 0
        buckets = [position // BUCKET * BUCKET + BUCKET for position in positions]
        for i in range(1, len(used) + 1):
            if i == len(used) or used[i] != used[i - 1] + 1 or buckets[i] != buckets[i - 1]:
                first, last, bucket = used[start], used[i - 1] + 1, buckets[start]
                self.runs.append((start, i, slots.mask[first:last, ..., :bucket], slots.views(first, last, bucket)))
                start = i

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        n = len(self.used)
        self.slots.keys[layer][self.used, :, :, self.positions] = key[:n]
        self.slots.values[layer][self.used, :, self.positions] = value[:n]
        # The query heads that share a key head become the rows of one small matrix product: no key is read twice.
        grouped = (query * scale).reshape(len(query), key.shape[1], -1, query.shape[2])
        out = torch.zeros_like(grouped)
        for first, last, mask, views in self.runs:
            keys, values = views[layer]
            weights = (grouped[first:last] @ keys + mask).softmax(-1, dtype=torch.float32).to(values.dtype)
            torch.matmul(weights, values, out=out[first:last])
        return out.reshape(query.shape)
