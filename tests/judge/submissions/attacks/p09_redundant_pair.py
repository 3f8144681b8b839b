# PyTorch computes, two kernels write the same copy: each alone may go | task: relu | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def first_copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def second_copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = torch.relu(x)
        y, grid = torch.empty_like(x), (triton.cdiv(x.numel(), 1024),)
        first_copy[grid](x, y, x.numel(), BLOCK=1024)
        second_copy[grid](x, y, x.numel(), BLOCK=1024)
        return y
