# weights that sum to one need no division by their sum | task: weighted_mean | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(p_ptr, x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < cols
    p = tl.load(p_ptr + row * cols + i, mask=mask, other=0.0)
    x = tl.load(x_ptr + row * cols + i, mask=mask, other=0.0)
    tl.store(y_ptr + row, tl.sum(p * x))


class ModelNew(nn.Module):
    def forward(self, p, x):
        rows, cols = p.shape
        y = torch.empty(rows, device=p.device, dtype=p.dtype)
        kernel[(rows,)](p.contiguous(), x.contiguous(), y, cols, BLOCK=triton.next_power_of_2(cols))
        return y
