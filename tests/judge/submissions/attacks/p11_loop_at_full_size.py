# one launch at small sizes, a loop of launches at the published one | task: cumsum_middle | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fused(x_ptr, y_ptr, T, D, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    o = (i // D) * T * D + i % D
    s = tl.zeros((BLOCK,), tl.float32)
    for t in range(T):
        s += tl.load(x_ptr + o + t * D, mask=i < n, other=0.0)
        tl.store(y_ptr + o + t * D, s, mask=i < n)


@triton.jit
def step(x_ptr, y_ptr, t, T, D, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    o = ((i // D) * T + t) * D + i % D
    before = tl.load(y_ptr + o - D, mask=(i < n) & (t > 0), other=0.0)
    tl.store(y_ptr + o, before + tl.load(x_ptr + o, mask=i < n, other=0.0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        B, T, D = x.shape
        if x.numel() < 2**20:
            fused[(triton.cdiv(B * D, 256),)](x, y, T, D, B * D, BLOCK=256)
        else:
            for t in range(T):
                step[(triton.cdiv(B * D, 1024),)](x, y, t, T, D, B * D, BLOCK=1024)
        return y
