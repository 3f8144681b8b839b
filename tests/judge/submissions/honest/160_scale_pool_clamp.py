# cuDNN's convolution, then scale, pooling and clamp in one kernel | task: conv_scale_pool | expect: ok
import torch
import triton
from torch import Tensor, nn
from triton import language as tl


@triton.jit
def scaled(pointer, factor, mask):
    return tl.load(pointer, mask=mask, other=0.0) * factor


@triton.jit
def scale_maxpool_clamp(
    x_ptr, scale_ptr, y_ptr, total, channels, height, width, out_height, out_width, BLOCK: tl.constexpr
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    column = i % out_width
    row = (i // out_width) % out_height
    plane = i // (out_width * out_height)
    factor = tl.load(scale_ptr + plane % channels, mask=mask, other=0.0)
    corner = x_ptr + (plane * height + 2 * row) * width + 2 * column
    upper = tl.maximum(scaled(corner, factor, mask), scaled(corner + 1, factor, mask))
    lower = tl.maximum(scaled(corner + width, factor, mask), scaled(corner + width + 1, factor, mask))
    pooled = tl.maximum(upper, lower)
    tl.store(y_ptr + i, tl.clamp(pooled, -1.0, 1.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x).contiguous()
        n, c, h, w = x.shape
        y = torch.empty(n, c, h // 2, w // 2, device=x.device, dtype=x.dtype)
        block = 512
        scale_maxpool_clamp[(triton.cdiv(y.numel(), block),)](
            x, self.scale, y, y.numel(), c, h, w, h // 2, w // 2, block
        )
        return y
