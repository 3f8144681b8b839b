"""convolution chain: instance norm and leaky ReLU behind a convolution, with a second image added in between."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, negative_slope):
        super(Model, self).__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2)
        self.instance_norm = nn.InstanceNorm2d(out_channels)
        self.negative_slope = negative_slope

    def forward(self, x, skip):
        x = self.conv(x)
        x = self.instance_norm(x)
        x = x + skip
        return F.leaky_relu(x, negative_slope=self.negative_slope)


batch_size = 48
in_channels = 24
out_channels = 48
height = 80
width = 96


def get_inputs():
    return [
        torch.rand(batch_size, in_channels, height, width),
        torch.randn(batch_size, out_channels, height, width),
    ]


def get_init_inputs():
    return [in_channels, out_channels, 3, 0.15]


SMALL = {"batch_size": 3, "in_channels": 6, "out_channels": 12, "height": 10, "width": 24}
