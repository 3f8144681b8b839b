import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gated(x_ptr, out_ptr, gain, half, BLOCK: tl.constexpr):
    image = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + image * 2 * half + i, mask=i < half)
    gate = tl.load(x_ptr + image * 2 * half + half + i, mask=i < half)
    # tanh without overflow, and with all digits near zero
    e = tl.exp(-2 * tl.abs(value))
    square = value * value
    series = value * (1 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315))))
    tanh = tl.where(tl.abs(value) < 0.1, series, tl.where(value < 0, -1.0, 1.0) * (1 - e) / (1 + e))
    tl.store(out_ptr + image * half + i, gain * tanh * tl.sigmoid(gate), mask=i < half)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, gain):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, 2 * out_channels, kernel_size=3, padding=1)
        self.gain = gain

    def forward(self, x):
        x = self.conv(x).contiguous()
        batch, channels, height, width = x.shape
        out = torch.empty(batch, channels // 2, height, width, device=x.device, dtype=x.dtype)
        half = channels // 2 * height * width
        gated[(triton.cdiv(half, 1024), batch)](x, out, self.gain, half, BLOCK=1024)
        return out
