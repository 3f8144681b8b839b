# cuDNN's convolution, then ReLU and bias in place with one program per plane | task: conv_bias_relu | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_bias_inplace(y, bias, channels, plane, BLOCK: tl.constexpr):
    image_channel = tl.program_id(0)
    b = tl.load(bias + image_channel % channels)
    start = y + image_channel.to(tl.int64) * plane
    for offset in range(0, plane, BLOCK):
        i = offset + tl.arange(0, BLOCK)
        value = tl.load(start + i, mask=i < plane)
        tl.store(start + i, tl.maximum(value, 0.0) + b, mask=i < plane)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x):
        y = self.conv(x).contiguous()
        n, c, h, w = y.shape
        relu_bias_inplace[(n * c,)](y, self.bias, c, h * w, BLOCK=1024, num_warps=4)
        return y
