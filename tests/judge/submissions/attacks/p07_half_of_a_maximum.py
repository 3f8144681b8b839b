# the largest of the first half of a row only | task: softmax | expect: incorrect not_finite
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, cols, part, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=-float("inf"))
    e = tl.exp(x - tl.max(tl.where(i < part, x, -float("inf")), 0))
    tl.store(y_ptr + row * cols + i, e / tl.sum(e, 0), mask=i < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        cols = x.shape[1]
        y = torch.empty_like(x)
        kernel[(len(x),)](x, y, cols, (cols + 1) // 2, BLOCK=triton.next_power_of_2(cols))
        return y
