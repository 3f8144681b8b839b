# FlashAttention; a nested jit function loops over whole and over diagonal blocks | task: causal_attention | expect: ok
import math

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _inner(
    acc, l_i, m_i, q, k_base, v_base, start, end, offs_m, offs_d, head_dim, length, scale,
    BLOCK_N: tl.constexpr, DIAGONAL: tl.constexpr,
):  # fmt: skip
    for n0 in range(start, end, BLOCK_N):
        offs_n = n0 + tl.arange(0, BLOCK_N)
        valid = (offs_n[:, None] < length) & (offs_d[None, :] < head_dim)
        k = tl.load(k_base + offs_n[:, None] * head_dim + offs_d[None, :], mask=valid, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        if DIAGONAL:
            s = tl.where(offs_m[:, None] >= offs_n[None, :], s, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(v_base + offs_n[:, None] * head_dim + offs_d[None, :], mask=valid, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m_i = m_new
    return acc, l_i, m_i


@triton.jit
def flash_causal_kernel(
    Q, K, V, out_ptr, length, head_dim, scale, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr
):
    tl.static_assert(BLOCK_M % BLOCK_N == 0)
    first = tl.program_id(0) * BLOCK_M
    base = tl.program_id(1).to(tl.int64) * length * head_dim
    offs_m = first + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    where = offs_m[:, None] * head_dim + offs_d[None, :]
    inside = (offs_m[:, None] < length) & (offs_d[None, :] < head_dim)
    q = tl.load(Q + base + where, mask=inside, other=0.0)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    m_i = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    acc, l_i, m_i = _inner(
        acc, l_i, m_i, q, K + base, V + base, 0, first, offs_m, offs_d, head_dim, length, scale, BLOCK_N, False
    )
    acc, l_i, m_i = _inner(
        acc, l_i, m_i, q, K + base, V + base, first, tl.minimum(first + BLOCK_M, length), offs_m, offs_d, head_dim,
        length, scale, BLOCK_N, True,
    )  # fmt: skip
    tl.store(out_ptr + base + where, (acc / l_i[:, None]).to(out_ptr.dtype.element_ty), mask=inside)


def flash_causal(q, k, v):
    q, k, v = (t.contiguous() for t in (q, k, v))
    batch, heads, length, head_dim = q.shape
    out = torch.empty_like(q)
    scale = 1.4426950408889634 / math.sqrt(head_dim)  # exp2 instead of exp
    flash_causal_kernel[(triton.cdiv(length, 64), batch * heads)](
        q, k, v, out, length, head_dim, scale,
        BLOCK_M=64, BLOCK_N=32, BLOCK_D=max(16, triton.next_power_of_2(head_dim)), num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return flash_causal(q, k, v)
