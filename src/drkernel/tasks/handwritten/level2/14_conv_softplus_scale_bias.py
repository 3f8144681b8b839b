"""convolution chain: softplus behind a convolution, a constant factor, and a bias per channel."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Softplus keeps the responses positive; scale and bias bring them to their range."""

    def __init__(self, in_channels, out_channels, kernel_size, scale, bias_shape):
        super(Model, self).__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        x = self.conv(x)
        x = F.softplus(x)
        x = x * self.scale
        x = x + self.bias
        return x


batch_size = 64
in_channels = 16
out_channels = 72
height, width = 96, 112
kernel_size = 3
scale = 0.4
bias_shape = (out_channels, 1, 1)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, scale, bias_shape]


SMALL = {"batch_size": 4, "in_channels": 2, "out_channels": 9, "height": 12, "width": 14}
