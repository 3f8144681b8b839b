import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def epilogue(x_ptr, bias_ptr, scale, channels, plane, BLOCK: tl.constexpr):
    image_channel = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    place = x_ptr + image_channel.to(tl.int64) * plane + i
    x = tl.load(place, mask=i < plane)
    bias = tl.load(bias_ptr + image_channel % channels)
    softplus = tl.where(x > 20, x, tl.maximum(x, 0.0) + tl.log(1 + tl.exp(-tl.abs(x))))
    tl.store(place, scale * softplus + bias, mask=i < plane)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, scale, bias_shape):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        x = self.conv(x).contiguous()
        batch, channels, height, width = x.shape
        plane = height * width
        epilogue[(batch * channels, triton.cdiv(plane, 2048))](x, self.bias, self.scale, channels, plane, BLOCK=2048)
        return x
