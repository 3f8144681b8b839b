# a depthwise convolution with unrolled taps | task: depthwise_conv | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def depthwise_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, channels, height, width,
    TAPS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    plane_id = tl.program_id(0)
    channel = plane_id % channels
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.program_id(2) * COLS + tl.arange(0, COLS)[None, :]
    plane = plane_id.to(tl.int64) * height * width
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32) + tl.load(b_ptr + channel)
    for r in tl.static_range(TAPS):
        for c in tl.static_range(TAPS):
            y = row + r - TAPS // 2
            x = col + c - TAPS // 2
            inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
            weight = tl.load(w_ptr + (channel * TAPS + r) * TAPS + c)
            acc += weight * tl.load(x_ptr + plane + y * width + x, mask=inside, other=0.0)
    tl.store(y_ptr + plane + row * width + col, acc, mask=(row < height) & (col < width))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        y = torch.empty_like(x)
        grid = (n * c, triton.cdiv(h, 8), triton.cdiv(w, 64))
        depthwise_kernel[grid](x, self.conv.weight, self.conv.bias, y, c, h, w, TAPS=3, ROWS=8, COLS=64)
        return y
