# a product with a diagonal matrix scales rows | task: diagonal_product | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(d_ptr, b_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    b = tl.load(b_ptr + row * cols + i, mask=i < cols)
    tl.store(y_ptr + row * cols + i, b * tl.load(d_ptr + row * rows + row), mask=i < cols)


class ModelNew(nn.Module):
    def forward(self, d, b):
        y, (rows, cols) = torch.empty_like(b), b.shape
        kernel[(rows,)](d.contiguous(), b.contiguous(), y, rows, cols, BLOCK=triton.next_power_of_2(cols))
        return y
