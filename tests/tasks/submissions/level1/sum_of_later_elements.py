import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def later_sums(x_ptr, out_ptr, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]
    start = tl.program_id(1).to(tl.int64) * rows * cols
    carry = tl.zeros((1, COLS), dtype=tl.float32)
    for block in range(tl.cdiv(rows, ROWS)):
        # from the end: tile 0 holds the last rows
        row = rows - 1 - block * ROWS - tl.arange(0, ROWS)[:, None]
        inside = (row >= 0) & (col < cols)
        x = tl.load(x_ptr + start + row * cols + col, mask=inside, other=0.0)
        sums = tl.cumsum(x, axis=0)
        tl.store(out_ptr + start + row * cols + col, carry + sums - x, mask=inside)
        carry += tl.sum(x, axis=0)[None, :]


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        before = x.shape[: self.dim].numel()
        behind = x.shape[self.dim + 1 :].numel()
        out = torch.empty_like(x)
        later_sums[(triton.cdiv(behind, 32), before)](x, out, x.shape[self.dim], behind, ROWS=32, COLS=32)
        return out
