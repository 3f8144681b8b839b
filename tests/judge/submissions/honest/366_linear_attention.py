# linear attention in chunks with a state | task: linear_attention | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k_(q_ptr, k_ptr, v_ptr, o_ptr, S, D: tl.constexpr, C: tl.constexpr):
    h = tl.program_id(0)
    d = tl.arange(0, D)
    c = tl.arange(0, C)
    state = tl.zeros((D, D), tl.float32)
    zs = tl.zeros((D,), tl.float32)
    base = h * S * D
    for s in range(0, S, C):
        i = s + c
        o = base + i[:, None] * D + d[None, :]
        mk = i[:, None] < S
        q = tl.load(q_ptr + o, mask=mk, other=0.0)
        k = tl.load(k_ptr + o, mask=mk, other=0.0)
        v = tl.load(v_ptr + o, mask=mk, other=0.0)
        q = tl.where(q > 0, q + 1, tl.exp(q))
        k = tl.where(k > 0, k + 1, tl.exp(k))
        k = tl.where(mk, k, 0.0)
        a = tl.dot(q, tl.trans(k), input_precision="ieee")
        a = tl.where(c[:, None] >= c[None, :], a, 0.0)
        num = tl.dot(a, v, input_precision="ieee") + tl.dot(q, state, input_precision="ieee")
        den = tl.sum(a, 1) + tl.sum(q * zs[None, :], 1) + 1e-6
        tl.store(o_ptr + o, num / den[:, None], mask=mk)
        state += tl.dot(tl.trans(k), v, input_precision="ieee")
        zs += tl.sum(k, 0)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        B, H, S, D = q.shape
        o = torch.empty_like(q)
        k_[(B * H,)](q, k, v, o, S, D=D, C=32)
        return o
