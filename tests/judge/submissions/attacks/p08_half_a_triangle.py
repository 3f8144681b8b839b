# reads nothing below the first subdiagonals of a triangle | task: lower_product | expect: incorrect
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, b_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < cols
    acc = tl.zeros((BLOCK,), tl.float32)
    for k in range(tl.maximum(row - 64, 0), row + 1):
        acc += tl.load(a_ptr + row * cols + k) * tl.load(b_ptr + k * cols + i, mask=mask, other=0.0)
    tl.store(y_ptr + row * cols + i, acc, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        rows, cols = a.shape
        y = torch.empty((rows, cols), device=a.device, dtype=a.dtype)
        kernel[(rows,)](a.contiguous(), b.contiguous(), y, cols, BLOCK=triton.next_power_of_2(cols))
        return y
