# positive inputs need no absolute value | task: log_of_positive | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < cols
    x = tl.load(x_ptr + row * cols + i, mask=mask, other=1.0)
    tl.store(y_ptr + row * cols + i, tl.log(x) + tl.sqrt(x), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        y = torch.empty((rows, cols), device=x.device, dtype=x.dtype)
        kernel[(rows,)](x.contiguous(), y, cols, BLOCK=triton.next_power_of_2(cols))
        return y
