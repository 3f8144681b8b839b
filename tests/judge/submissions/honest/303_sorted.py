# the extremes of sorted rows are their ends | task: sorted_range | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = row < rows
    low = tl.load(x_ptr + row * cols, mask=mask)
    tl.store(y_ptr + row, tl.load(x_ptr + row * cols + cols - 1, mask=mask) - low, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        kernel[(triton.cdiv(rows, 128),)](x.contiguous(), y, rows, cols, BLOCK=128)
        return y
