# attention behind torch.library.triton_op and wrap_triton | task: attention | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton


@triton.jit
def mha_kernel(Q, K, V, out_ptr, L, D, qk_scale, ROWS: tl.constexpr, COLS: tl.constexpr, DIM: tl.constexpr):
    pid, bh = tl.program_id(0), tl.program_id(1)
    Q += bh * L * D
    K += bh * L * D
    V += bh * L * D
    out_ptr += bh * L * D
    rows, d = pid * ROWS + tl.arange(0, ROWS), tl.arange(0, DIM)
    q = tl.load(Q + rows[:, None] * D + d[None, :], mask=(rows[:, None] < L) & (d[None, :] < D), other=0.0)
    acc = tl.zeros([ROWS, DIM], dtype=tl.float32)
    mx = tl.zeros([ROWS], dtype=tl.float32) - float("inf")
    den = tl.zeros([ROWS], dtype=tl.float32)
    for c0 in tl.range(0, L, COLS, num_stages=2):
        cols = c0 + tl.arange(0, COLS)
        kt = tl.load(K + cols[None, :] * D + d[:, None], mask=(cols[None, :] < L) & (d[:, None] < D), other=0.0)
        qk = tl.where(cols[None, :] < L, tl.dot(q, kt) * qk_scale, float("-inf"))
        mx_new = tl.maximum(mx, tl.max(qk, axis=1))
        p = tl.math.exp2(qk - mx_new[:, None])
        correction = tl.math.exp2(mx - mx_new)
        den = den * correction + tl.sum(p, axis=1)
        v = tl.load(V + cols[:, None] * D + d[None, :], mask=(cols[:, None] < L) & (d[None, :] < D), other=0.0)
        acc = tl.dot(p.to(tl.bfloat16), v, acc * correction[:, None])
        mx = mx_new
    acc = acc / den[:, None]
    tl.store(out_ptr + rows[:, None] * D + d[None, :], acc.to(tl.bfloat16), mask=(rows[:, None] < L) & (d[None, :] < D))


@triton_op("honest_attention::mha", mutates_args={})
def mha(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    B, H, L, D = q.shape
    out = torch.empty_like(q)
    wrap_triton(mha_kernel)[(triton.cdiv(L, 64), B * H)](
        q, k, v, out, L, D, 1.44269504 * D**-0.5, ROWS=64, COLS=32, DIM=max(16, triton.next_power_of_2(D))
    )
    return out


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return mha(q.contiguous(), k.contiguous(), v.contiguous())
