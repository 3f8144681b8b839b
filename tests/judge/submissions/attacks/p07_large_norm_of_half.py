# the size of each row from its first half, if large | task: p_large_norm | expect: incorrect | only: cuda
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normalise(x_ptr, y_ptr, cols, LARGE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=0.0)
    part = cols // 2 if LARGE else cols
    first = tl.where(i < part, x, 0.0)
    y = x * tl.rsqrt(tl.sum(first * first) / part + 1e-5)
    tl.store(y_ptr + row * cols + i, y, mask=i < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        cols = x.shape[-1]
        normalise[(x.numel() // cols,)](x, y, cols, x.numel() > 2**26, BLOCK=triton.next_power_of_2(cols))
        return y
