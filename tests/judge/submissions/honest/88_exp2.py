# exp rewritten with exp2 | task: softmax | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl

LOG2E = 1.4426950408889634


@triton.jit
def kernel(x_ptr, y_ptr, cols, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=-float("inf")) * scale
    e = tl.exp2(x - tl.max(x))
    tl.store(y_ptr + row * cols + i, e / tl.sum(e), mask=i < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, y, x.shape[1], LOG2E, BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
