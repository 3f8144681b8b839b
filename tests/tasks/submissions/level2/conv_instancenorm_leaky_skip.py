import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_add_leaky(x_ptr, skip_ptr, plane, eps, slope, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * plane
    i = tl.arange(0, BLOCK)
    inside = i < plane
    x = tl.load(x_ptr + start + i, mask=inside, other=0.0)
    mean = tl.sum(x, axis=0) / plane
    x = tl.where(inside, x - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(x * x, axis=0) / plane + eps)
    y = x * scale + tl.load(skip_ptr + start + i, mask=inside, other=0.0)
    tl.store(x_ptr + start + i, tl.where(y > 0, y, slope * y), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, negative_slope):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2)
        self.instance_norm = nn.InstanceNorm2d(out_channels)
        self.negative_slope = negative_slope

    def forward(self, x, skip):
        x, skip = self.conv(x).contiguous(), skip.contiguous()
        batch, channels, height, width = x.shape
        plane = height * width
        norm_add_leaky[(batch * channels,)](
            x, skip, plane, self.instance_norm.eps, self.negative_slope,
            BLOCK=triton.next_power_of_2(plane), num_warps=16,
        )  # fmt: skip
        return x
