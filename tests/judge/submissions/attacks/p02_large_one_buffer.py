# all calls return one tensor, if large | task: p_large_norm | expect: incorrect overwrites_output | only: cuda
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normalise(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=0.0)
    y = x * tl.rsqrt(tl.sum(x * x) / cols + 1e-5)
    tl.store(y_ptr + row * cols + i, y, mask=i < cols)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.y = None

    def forward(self, x):
        if self.y is None or self.y.shape != x.shape or x.numel() < 2**26:
            self.y = torch.empty_like(x)
        cols = x.shape[-1]
        normalise[(x.numel() // cols,)](x, self.y, cols, BLOCK=triton.next_power_of_2(cols))
        return self.y
