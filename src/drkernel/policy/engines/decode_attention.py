"""The Triton kernel of the graphs engine's attention: one new token per sequence over its cached keys.

Everything that differs between sequences (slot, length, whether it still runs) is read from tensors on the device, so
that a CUDA graph can replay it. A program per sequence and key head reads every key once, for all query heads
that share it, in float32; it also writes the new key and value to the cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

DOT_ROWS = 16
"""Fewest rows of a product on tensor cores; query heads that share a key head are padded to them."""
DOT_GROUP = 4
"""In float32, where tensor cores are not exact, fewer query heads per key head multiply element by element."""
TILE = 4096
"""Most elements (query heads x keys x head size) of a step that multiplies so: 32 registers per thread."""


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cache: Tensor,
    rows: Tensor,
    alive: Tensor,
    positions: Tensor,
    scale: float,
) -> Tensor:
    """query [R, Hq, D], key and value [R, Hkv, D] of the new tokens, cache [2, S, Hkv, context, D] -> [R, Hq, D].

    Row i belongs to slot rows[i]; the new token's place is positions[slot], and all earlier ones are in the cache.
    rows int64 [R], alive and positions int64 [S]. Rows that are not alive write nothing and have any finite result.
    """
    assert cache.is_contiguous() and query.dtype == key.dtype == value.dtype == cache.dtype
    query, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value))
    heads, size = key.shape[1:]
    group = query.shape[1] // heads
    dot = query.dtype != torch.float32 or group >= DOT_GROUP
    width = max(16, triton.next_power_of_2(size))
    padded = max(DOT_ROWS, triton.next_power_of_2(group)) if dot else triton.next_power_of_2(group)
    block = (64 if width <= 128 else 32) if dot else max(16, min(128, TILE // (padded * width)))
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    strides = [stride for x in (query, key, value) for stride in x.stride()[:2]]
    _attend[(len(rows), heads)](
        *(query, key, value, cache[0], cache[1], out, rows, alive, positions, scale),
        *strides,
        *cache.stride()[1:3],
        GROUP=group,
        PADDED=padded,
        SIZE=size,
        WIDTH=width,
        BLOCK=block,
        DOT=dot,
        num_warps=4,
    )
    return out


@triton.jit
def _attend(
    query,
    key,
    value,
    keys,
    values,
    out,
    rows,
    alive,
    positions,
    scale,
    query_row,
    query_head,
    key_row,
    key_head,
    value_row,
    value_head,
    cache_slot,
    cache_head,
    GROUP: tl.constexpr,
    PADDED: tl.constexpr,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    DOT: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    slot = tl.load(rows + row)
    runs = tl.load(alive + slot) != 0
    length = tl.where(runs, tl.load(positions + slot), 0).to(tl.int32)  # keys in the cache
    column = tl.arange(0, WIDTH)
    inside = column < SIZE
    member = tl.arange(0, PADDED)
    there = (member[:, None] < GROUP) & inside[None, :]
    heads = head * GROUP + member[:, None]
    q = tl.load(query + row * query_row + heads * query_head + column[None, :], mask=there, other=0.0)
    new_key = tl.load(key + row * key_row + head * key_head + column, mask=inside, other=0.0)
    new_value = tl.load(value + row * value_row + head * value_head + column, mask=inside, other=0.0)
    start = slot * cache_slot + head * cache_head
    tl.store(keys + start + length * SIZE + column, new_key, mask=inside & runs)
    tl.store(values + start + length * SIZE + column, new_value, mask=inside & runs)
    # The new token comes first, from registers, so that nothing is read that this kernel writes.
    wide = q.to(tl.float32)
    top = tl.sum(wide * new_key.to(tl.float32)[None, :], 1) * scale
    total = tl.full([PADDED], 1.0, tl.float32)
    result = tl.zeros([PADDED, WIDTH], tl.float32) + new_value.to(tl.float32)[None, :]
    for first in range(0, length, BLOCK):
        token = first + tl.arange(0, BLOCK)
        place = start + token[:, None] * SIZE + column[None, :]
        valid = (token[:, None] < length) & inside[None, :]
        k = tl.load(keys + place, mask=valid, other=0.0)
        v = tl.load(values + place, mask=valid, other=0.0)
        if DOT:
            score = tl.dot(q, tl.trans(k), input_precision="ieee")
        else:
            score = tl.sum(wide[:, None, :] * k.to(tl.float32)[None, :, :], 2)
        score = tl.where(token[None, :] < length, score * scale, -float("inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        share = tl.exp(score - higher[:, None])
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(share, 1)
        if DOT:
            part = tl.dot(share.to(v.dtype), v, input_precision="ieee")
        else:
            part = tl.sum(share[:, :, None] * v.to(tl.float32)[None, :, :], 1)
        result = result * shrink[:, None] + part
        top = higher
    place = (row * tl.num_programs(1) * GROUP + heads) * SIZE + column[None, :]
    tl.store(out + place, (result / total[:, None]).to(out.dtype.element_ty), mask=there)
