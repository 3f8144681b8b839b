# the cosine of unit vectors is their product | task: cosine_of_units | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_of_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < cols
    x = tl.load(x_ptr + row * cols + i, mask=mask, other=0.0)
    y = tl.load(y_of_ptr + row * cols + i, mask=mask, other=0.0)
    tl.store(y_ptr + row, tl.sum(x * y))


class ModelNew(nn.Module):
    def forward(self, x, y_of):
        rows, cols = x.shape
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        kernel[(rows,)](x.contiguous(), y_of.contiguous(), y, cols, BLOCK=triton.next_power_of_2(cols))
        return y
