"""convolution chain: over volumes, with a bias of its own, swish, and average pooling."""

import torch
import torch.nn as nn

batch_size = 16
in_channels = 4
out_channels = 32
depth = 18
height = 50
width = 66


class Model(nn.Module):
    """3D convolution -> bias -> x * sigmoid(x) -> 3D average pooling."""

    def __init__(self, in_channels, out_channels, kernel_size, pool_kernel_size, bias_shape):
        super(Model, self).__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size, bias=False)
        self.bias = nn.Parameter(torch.randn(bias_shape) * 0.1)
        self.avg_pool = nn.AvgPool3d(pool_kernel_size)

    def forward(self, x):
        x = self.conv(x) + self.bias
        x = torch.sigmoid(x) * x
        x = self.avg_pool(x)
        return x


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, 3, 2, (out_channels, 1, 1, 1)]


SMALL = {"batch_size": 2, "in_channels": 4, "out_channels": 8, "depth": 6, "height": 10, "width": 14}
