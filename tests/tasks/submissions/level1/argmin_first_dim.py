import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def argmin(x_ptr, out_ptr, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]
    start = x_ptr + tl.program_id(1).to(tl.int64) * rows * cols
    least = tl.full((ROWS, COLS), float("inf"), dtype=tl.float32)
    where = tl.zeros((ROWS, COLS), dtype=tl.int32)
    for begin in range(0, rows, ROWS):
        row = begin + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (col < cols)
        x = tl.load(start + row.to(tl.int64) * cols + col, mask=inside, other=float("inf"))
        where = tl.where(x < least, row, where)
        least = tl.minimum(least, x)
    best = tl.min(least, axis=0)[None, :]
    first = tl.min(tl.where(least == best, where, rows), axis=0)[None, :]
    tl.store(out_ptr + tl.program_id(1) * cols + col, first.to(tl.int64), mask=col < cols)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, distances):
        x = distances.contiguous()
        before = x.shape[: self.dim].numel()
        behind = x.shape[self.dim + 1 :].numel()
        shape = x.shape[: self.dim] + x.shape[self.dim + 1 :]
        out = torch.empty(shape, device=x.device, dtype=torch.int64)
        argmin[(triton.cdiv(behind, 128), before)](x, out, x.shape[self.dim], behind, ROWS=8, COLS=128)
        return out
