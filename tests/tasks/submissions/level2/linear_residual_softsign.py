import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def residual_softsign(h_ptr, x_ptr, shift_ptr, scale, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < cols
    y = scale * tl.load(h_ptr + row + i, mask=inside) + tl.load(x_ptr + row + i, mask=inside)
    y = y / (1 + tl.abs(y)) + tl.load(shift_ptr + i, mask=inside)
    tl.store(h_ptr + row + i, y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, scale):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = scale
        self.shift = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        h = self.linear(x)
        rows, cols = h.shape
        residual_softsign[(rows, triton.cdiv(cols, 1024))](h, x, self.shift, self.scale, cols, BLOCK=1024)
        return h
