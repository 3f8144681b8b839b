"""Fewer kernels for the forward of the graphs engine's own model: its products are small, and most kernels are others.

Any decoder gets norms of one kernel in place of seven. Qwen3's blocks, those of this project's own policies, also get
one product for queries, keys and values, one kernel for their norms and rotary embedding, one product for gate and up,
and one kernel after it: 11 kernels per block, where transformers starts about 50. The merged matrices share the memory
of the weights that they consist of, so that copying weights into the model reaches them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn
from transformers import PreTrainedModel

from drkernel.policy.attention import Layout

TILE = 2048
"""Elements that a program of `_rms_norm` takes; of `_gate`, half."""


@torch.no_grad()
def fuse(model: PreTrainedModel) -> None:
    """Changes the model's forward, without gradients from now on; what it computes differs by rounding alone.

    Not in inference mode: weights made there could not be overwritten outside of it.
    """
    assert not torch.is_inference_mode_enabled()
    fuse_norms(model)
    if model.config.model_type != "qwen3" or model.config.attention_bias or model.config.hidden_act != "silu":
        return
    layers: Any = model.base_model.layers
    for layer in layers:
        attention, mlp = layer.self_attn, layer.mlp
        attention.merged = merge([attention.q_proj, attention.k_proj, attention.v_proj])
        attention.forward = functools.partial(_attention, attention)
        mlp.merged = merge([mlp.gate_proj, mlp.up_proj])
        mlp.forward = functools.partial(_mlp, mlp)


def merge(layers: Sequence[nn.Linear]) -> Tensor:
    """One matrix with the rows of all, whose weights are parts of it from now on."""
    merged = torch.cat([layer.weight.detach() for layer in layers])
    for layer, part in zip(layers, merged.split([len(layer.weight) for layer in layers]), strict=True):
        layer.weight.data = part
    return merged


def _attention(
    module: Any, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], layout: Layout, **_: Any
) -> tuple[Tensor, None]:
    """Qwen3Attention.forward, hidden_states [1, T, hidden]."""
    projected = F.linear(hidden_states[0], module.merged)
    size = module.head_dim
    heads = projected.shape[1] // size
    queries = module.o_proj.in_features // size
    keys = (heads - queries) // 2
    norms = module.q_norm, module.k_norm
    turned = rotated(
        projected, queries, keys, norms[0].weight, norms[1].weight, *position_embeddings, norms[0].variance_epsilon
    )
    value = projected.view(-1, heads, size)[:, queries + keys :]
    out = layout.attend(module.layer_idx, turned[:, :queries], turned[:, queries:], value, module.scaling)
    return module.o_proj(out.reshape(1, len(projected), queries * size)), None


def _mlp(module: Any, x: Tensor) -> Tensor:
    return module.down_proj(gated(F.linear(x, module.merged)))


def rotated(
    projected: Tensor,
    queries: int,
    keys: int,
    query_norm: Tensor,
    key_norm: Tensor,
    cos: Tensor,
    sin: Tensor,
    epsilon: float,
) -> Tensor:
    """projected [T, (queries + 2 keys) D]: heads of queries, keys and values -> the first two [T, queries + keys, D],
    normalised (norm weights [D]) and rotated by cos and sin [1, T, D]; in float32, rounded once."""
    size = len(query_norm)
    out = torch.empty(len(projected), queries + keys, size, dtype=projected.dtype, device=projected.device)
    _rotated[(len(projected),)](
        *(projected, out, query_norm, key_norm, cos.contiguous(), sin.contiguous(), epsilon),
        QUERIES=queries,
        KEYS=keys,
        HEADS=triton.next_power_of_2(queries + keys),
        SIZE=size,
        WIDTH=triton.next_power_of_2(size),
        num_warps=4,
    )
    return out


@triton.jit
def _rotated(
    projected,
    out,
    query_norm,
    key_norm,
    cos,
    sin,
    epsilon,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)
    column = tl.arange(0, WIDTH)
    first = column < SIZE // 2
    partner = tl.where(first, column + SIZE // 2, column - SIZE // 2)
    within = column < SIZE
    inside = (head[:, None] < QUERIES + KEYS) & within[None, :]
    start = projected + token * ((QUERIES + 2 * KEYS) * SIZE) + head[:, None] * SIZE
    x = tl.load(start + column[None, :], mask=inside, other=0.0).to(tl.float32)
    y = tl.load(start + partner[None, :], mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 1) / SIZE + epsilon)[:, None]
    is_query = head[:, None] < QUERIES
    of_query = tl.load(query_norm + column, mask=within, other=0.0).to(tl.float32)
    of_key = tl.load(key_norm + column, mask=within, other=0.0).to(tl.float32)
    x = x * scale * tl.where(is_query, of_query[None, :], of_key[None, :])
    of_query = tl.load(query_norm + partner, mask=within, other=0.0).to(tl.float32)
    of_key = tl.load(key_norm + partner, mask=within, other=0.0).to(tl.float32)
    y = y * scale * tl.where(is_query, of_query[None, :], of_key[None, :])
    c = tl.load(cos + token * SIZE + column, mask=within, other=0.0).to(tl.float32)
    s = tl.load(sin + token * SIZE + column, mask=within, other=0.0).to(tl.float32)
    result = x * c[None, :] + tl.where(first[None, :], -y, y) * s[None, :]
    place = token * ((QUERIES + KEYS) * SIZE) + head[:, None] * SIZE + column[None, :]
    tl.store(out + place, result.to(out.dtype.element_ty), mask=inside)


def gated(x: Tensor) -> Tensor:
    """x [..., 2 n]: gate and up -> silu(gate) up [..., n], in float32, rounded once."""
    assert x.is_contiguous()
    size = x.shape[-1] // 2
    out = torch.empty(*x.shape[:-1], size, dtype=x.dtype, device=x.device)
    _gated[(out.numel() // size, triton.cdiv(size, TILE // 2))](x, out, size, BLOCK=TILE // 2)
    return out


@triton.jit
def _gated(x, out, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(x + row * 2 * size + column, mask=column < size, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * size + size + column, mask=column < size, other=0.0).to(tl.float32)
    result = gate / (1 + tl.exp(-gate)) * up
    tl.store(out + row * size + column, result.to(out.dtype.element_ty), mask=column < size)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x [..., D], weight [D] -> x / sqrt(mean x² + epsilon), rounded to x's type, times weight: as in transformers."""
    x = x.contiguous()
    out = torch.empty_like(x)
    size = x.shape[-1]
    width = triton.next_power_of_2(size)
    block = max(1, TILE // width)
    count = x.numel() // size
    _rms_norm[(triton.cdiv(count, block),)](x, weight, out, epsilon, count, SIZE=size, WIDTH=width, BLOCK=block)
    return out


@triton.jit
def _rms_norm(x, weight, out, epsilon, count, SIZE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, WIDTH)
    inside = (row[:, None] < count) & (column[None, :] < SIZE)
    place = row[:, None].to(tl.int64) * SIZE + column[None, :]
    wide = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(weight + column, mask=column < SIZE, other=0.0).to(tl.float32)
    mean = tl.sum(wide * wide, 1) / SIZE
    normal = (wide * tl.rsqrt(mean + epsilon)[:, None]).to(out.dtype.element_ty).to(tl.float32)
    tl.store(out + place, (factor[None, :] * normal).to(out.dtype.element_ty), mask=inside)


@torch.no_grad()
def fuse_norms(model: nn.Module) -> int:
    """Lets `rms_norm` compute every layer of the model that is such a norm; returns how many there are.

    A layer is taken by what it computes: its result on random numbers must be that of `rms_norm`. Seven kernels become
    one, and norms are half of a small decoder's kernels.
    """
    fused = 0
    for module in model.modules():
        weight, epsilon = getattr(module, "weight", None), getattr(module, "variance_epsilon", None)
        if not isinstance(weight, Tensor) or weight.ndim != 1 or not isinstance(epsilon, float):
            continue
        generator = torch.Generator(weight.device).manual_seed(0)
        x = torch.randn(3, len(weight), generator=generator, device=weight.device, dtype=weight.dtype)
        try:
            torch.testing.assert_close(rms_norm(x, weight, epsilon), module(x))
        except AssertionError:
            continue
        module.forward = functools.partial(_forward, module)
        fused += 1
    return fused


def _forward(module: Any, x: Tensor) -> Tensor:
    return rms_norm(x, module.weight, module.variance_epsilon)
