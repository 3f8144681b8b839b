import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def combine(n_a, mean_a, m2_a, n_b, mean_b, m2_b):
    n = n_a + n_b
    share = tl.where(n > 0, n_b / tl.maximum(n, 1.0), 0.0)
    delta = mean_b - mean_a
    return n, mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share


@triton.jit
def deviation(x_ptr, out_ptr, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]
    start = x_ptr + tl.program_id(1).to(tl.int64) * rows * cols
    n = tl.zeros((ROWS, COLS), dtype=tl.float32)
    mean = tl.zeros((ROWS, COLS), dtype=tl.float32)
    m2 = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for begin in range(0, rows, ROWS):
        row = begin + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (col < cols)
        x = tl.load(start + row * cols + col, mask=inside, other=0.0)
        n += tl.where(inside, 1.0, 0.0)
        delta = tl.where(inside, x - mean, 0.0)
        mean += delta / tl.maximum(n, 1.0)
        m2 += tl.where(inside, delta * (x - mean), 0.0)
    n_all, _, m2_all = tl.reduce((n, mean, m2), 0, combine)
    std = tl.sqrt(m2_all / (n_all - 1))
    tl.store(out_ptr + tl.program_id(1) * cols + col, std[None, :], mask=col < cols)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        before = x.shape[: self.dim].numel()
        behind = x.shape[self.dim + 1 :].numel()
        shape = list(x.shape)
        shape[self.dim] = 1
        out = torch.empty(shape, device=x.device, dtype=x.dtype)
        deviation[(triton.cdiv(behind, 64), before)](x, out, x.shape[self.dim], behind, ROWS=16, COLS=64)
        return out
