# eight kernels in turn, where the dry run fails | task: cumsum_middle | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def step0(x_ptr, y_ptr, t, T, D, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    o = ((i // D) * T + t) * D + i % D
    before = tl.load(y_ptr + o - D, mask=(i < n) & (t > 0), other=0.0)
    tl.store(y_ptr + o, before + tl.load(x_ptr + o, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def step1(x_ptr, y_ptr, t, T, D, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    o = ((i // D) * T + t) * D + i % D
    before = tl.load(y_ptr + o - D, mask=(i < n) & (t > 0), other=0.0)
    tl.store(y_ptr + o, before + tl.load(x_ptr + o, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def step2(x_ptr, y_ptr, t, T, D, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    o = ((i // D) * T + t) * D + i % D
    before = tl.load(y_ptr + o - D, mask=(i < n) & (t > 0), other=0.0)
    tl.store(y_ptr + o, before + tl.load(x_ptr + o, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def step3(x_ptr, y_ptr, t, T, D, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    o = ((i // D) * T + t) * D + i % D
    before = tl.load(y_ptr + o - D, mask=(i < n) & (t > 0), other=0.0)
    tl.store(y_ptr + o, before + tl.load(x_ptr + o, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def step4(x_ptr, y_ptr, t, T, D, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    o = ((i // D) * T + t) * D + i % D
    before = tl.load(y_ptr + o - D, mask=(i < n) & (t > 0), other=0.0)
    tl.store(y_ptr + o, before + tl.load(x_ptr + o, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def step5(x_ptr, y_ptr, t, T, D, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    o = ((i // D) * T + t) * D + i % D
    before = tl.load(y_ptr + o - D, mask=(i < n) & (t > 0), other=0.0)
    tl.store(y_ptr + o, before + tl.load(x_ptr + o, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def step6(x_ptr, y_ptr, t, T, D, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    o = ((i // D) * T + t) * D + i % D
    before = tl.load(y_ptr + o - D, mask=(i < n) & (t > 0), other=0.0)
    tl.store(y_ptr + o, before + tl.load(x_ptr + o, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def step7(x_ptr, y_ptr, t, T, D, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    o = ((i // D) * T + t) * D + i % D
    before = tl.load(y_ptr + o - D, mask=(i < n) & (t > 0), other=0.0)
    tl.store(y_ptr + o, before + tl.load(x_ptr + o, mask=i < n, other=0.0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        torch.nonzero(x)
        B, T, D = x.shape
        kernels = (step0, step1, step2, step3, step4, step5, step6, step7)
        for t in range(T):
            kernels[t % 8][(triton.cdiv(B * D, 1024),)](x, y, t, T, D, B * D, BLOCK=1024)
        return y
