# attention in fp16 of numbers that are fp32 outside | task: attention_in_half | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def att(q_ptr, k_ptr, v_ptr, o_ptr, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    pm = tl.program_id(0)
    h = tl.program_id(1)
    rm = pm * BM + tl.arange(0, BM)
    rd = tl.arange(0, D)
    rn = tl.arange(0, BN)
    base = h * S * D
    q = tl.load(q_ptr + base + rm[:, None] * D + rd[None, :], mask=rm[:, None] < S, other=0.0).to(tl.float16)
    m = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for s in range(0, S, BN):
        n = s + rn
        k = tl.load(k_ptr + base + n[None, :] * D + rd[:, None], mask=n[None, :] < S, other=0.0).to(tl.float16)
        x = tl.dot(q, k) * scale
        x = tl.where(n[None, :] < S, x, -float("inf"))
        new = tl.maximum(m, tl.max(x, 1))
        p = tl.exp(x - new[:, None])
        a = tl.exp(m - new)
        total = total * a + tl.sum(p, 1)
        v = tl.load(v_ptr + base + n[:, None] * D + rd[None, :], mask=n[:, None] < S, other=0.0).to(tl.float16)
        acc = tl.dot(p.to(tl.float16), v, acc * a[:, None])
        m = new
    tl.store(o_ptr + base + rm[:, None] * D + rd[None, :], acc / total[:, None], mask=rm[:, None] < S)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        B, S, D = q.shape
        o = torch.empty_like(q)
        att[(triton.cdiv(S, 64), B)](q, k, v, o, S, 0.125, D=D, BM=64, BN=64)
        return o
