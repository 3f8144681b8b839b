# blocks of columns inside without a mask, and the last columns in a kernel of their own | task: bias_relu | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def interior(x_ptr, b_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + row * cols + i, tl.maximum(tl.load(x_ptr + row * cols + i) + tl.load(b_ptr + i), 0.0))


@triton.jit
def edge(x_ptr, b_ptr, y_ptr, cols, start, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = start + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols) + tl.load(b_ptr + i, mask=i < cols)
    tl.store(y_ptr + row * cols + i, tl.maximum(x, 0.0), mask=i < cols)


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(cols))

    def forward(self, x):
        x, y = x.contiguous(), torch.empty_like(x)
        rows, cols = x.shape
        whole = cols // 32
        if whole:
            interior[(rows, whole)](x, self.bias, y, cols, BLOCK=32)
        edge[(rows,)](x, self.bias, y, cols, whole * 32, BLOCK=32)
        return y
