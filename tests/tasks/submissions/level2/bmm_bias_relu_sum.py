import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_relu_sum(c_ptr, bias_ptr, out_ptr, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    item = tl.program_id(1).to(tl.int64)
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]
    bias = tl.load(bias_ptr + col, mask=col < cols, other=0.0)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (col < cols)
        c = tl.load(c_ptr + item * rows * cols + row * cols + col, mask=inside, other=0.0)
        total += tl.where(inside, tl.maximum(c + bias, 0.0), 0.0)
    tl.store(out_ptr + item * cols + col, tl.sum(total, axis=0)[None, :], mask=col < cols)


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(cols))

    def forward(self, a, b):
        c = torch.bmm(a, b)
        items, rows, cols = c.shape
        out = torch.empty(items, cols, device=c.device, dtype=c.dtype)
        bias_relu_sum[(triton.cdiv(cols, 64), items)](c, self.bias, out, rows, cols, ROWS=16, COLS=64)
        return out
