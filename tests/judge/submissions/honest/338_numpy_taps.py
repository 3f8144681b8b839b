# numpy convolves the taps of a filter in the constructor | task: binomial_filter | expect: ok
import numpy as np
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def smooth(x_ptr, taps_ptr, y_ptr, length, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(TAPS):
        i = j + k - TAPS // 2
        inside = (i >= 0) & (i < length)
        total += tl.load(taps_ptr + k) * tl.load(x_ptr + row * length + i, mask=inside, other=0.0)
    tl.store(y_ptr + row * length + j, total, mask=j < length)


class ModelNew(nn.Module):
    def __init__(self, order):
        super().__init__()
        taps = np.ones(1)
        for _ in range(order):
            taps = np.convolve(taps, [0.5, 0.5])
        self.register_buffer("taps", torch.tensor(taps, dtype=torch.float32).view(1, 1, -1))

    def forward(self, x):
        rows, length = x.shape
        y = torch.empty_like(x)
        grid = (triton.cdiv(length, 1024), rows)
        smooth[grid](x, self.taps, y, length, TAPS=self.taps.shape[-1], BLOCK=1024)
        return y
