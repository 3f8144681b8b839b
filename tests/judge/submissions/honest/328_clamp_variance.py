# layer norm in three kernels, of which one keeps the variance from below zero | task: layer_norm | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments(x_ptr, mean_ptr, var_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=0.0)
    mean = tl.sum(x) / cols
    centred = tl.where(i < cols, x - mean, 0.0)
    tl.store(mean_ptr + row, mean)
    tl.store(var_ptr + row, tl.sum(centred * centred) / cols)


@triton.jit
def clamp(var_ptr, rows, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(var_ptr + i, tl.maximum(tl.load(var_ptr + i, mask=i < rows), 0.0), mask=i < rows)


@triton.jit
def normalise(x_ptr, mean_ptr, var_ptr, w_ptr, b_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols)
    y = (x - tl.load(mean_ptr + row)) * tl.rsqrt(tl.load(var_ptr + row) + eps)
    y = y * tl.load(w_ptr + i, mask=i < cols) + tl.load(b_ptr + i, mask=i < cols)
    tl.store(y_ptr + row * cols + i, y, mask=i < cols)


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.norm = nn.LayerNorm(cols)

    def forward(self, x):
        x, y = x.contiguous(), torch.empty_like(x)
        rows, cols = x.shape
        mean, var = torch.empty(2, rows, device=x.device)
        block = triton.next_power_of_2(cols)
        moments[(rows,)](x, mean, var, cols, BLOCK=block)
        clamp[(triton.cdiv(rows, 128),)](var, rows, BLOCK=128)
        normalise[(rows,)](x, mean, var, self.norm.weight, self.norm.bias, y, cols, self.norm.eps, BLOCK=block)
        return y
