import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_tanh_add(h_ptr, x_ptr, gain_ptr, bias_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    i = tl.arange(0, BLOCK)
    inside = i < cols
    h = tl.load(h_ptr + row + i, mask=inside, other=0.0)
    mean = tl.sum(h, axis=0) / cols
    h = tl.where(inside, h - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(h * h, axis=0) / cols + eps)
    gain = tl.load(gain_ptr + i, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + i, mask=inside, other=0.0)
    x = tl.load(x_ptr + row + i, mask=inside, other=0.0)
    y = h * scale * gain + bias
    # tanh without overflow, and with all digits near zero
    e = tl.exp(-2 * tl.abs(y))
    square = y * y
    series = y * (1 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315))))
    tanh = tl.where(tl.abs(y) < 0.1, series, tl.where(y < 0, -1.0, 1.0) * (1 - e) / (1 + e))
    tl.store(h_ptr + row + i, x + tanh, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        x = x.contiguous()
        h = self.proj(x)
        rows, cols = h.shape
        norm_tanh_add[(rows,)](
            h, x, self.norm.weight, self.norm.bias, cols, self.norm.eps, BLOCK=triton.next_power_of_2(cols), num_warps=8
        )
        return h
