# softmax, and a kernel that repairs rows of infinities, of which there are none | task: softmax | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=-float("inf"))
    e = tl.exp(x - tl.max(x))
    tl.store(y_ptr + row * cols + i, e / tl.sum(e), mask=i < cols)


@triton.jit
def repair(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=-float("inf"))
    if tl.max(x) == -float("inf"):
        tl.store(y_ptr + row * cols + i, float("nan"), mask=i < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        x, y = x.contiguous(), torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=block)
        repair[(x.shape[0],)](x, y, x.shape[1], BLOCK=block)
        return y
