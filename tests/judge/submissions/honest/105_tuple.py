# two outputs | task: extremes | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, low_ptr, high_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < cols
    x = tl.load(x_ptr + row * cols + i, mask=mask, other=0.0)
    tl.store(low_ptr + row, tl.min(tl.where(mask, x, float("inf"))))
    tl.store(high_ptr + row, tl.max(tl.where(mask, x, -float("inf"))))


class ModelNew(nn.Module):
    def forward(self, x):
        low, high = torch.empty((2, x.shape[0]), device=x.device, dtype=x.dtype)
        kernel[(x.shape[0],)](x, low, high, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return low, high
