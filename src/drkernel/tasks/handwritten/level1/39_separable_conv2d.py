"""convolution: separable, a dilated filter for each channel and then a mix of the channels at each pixel."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Depthwise-separable 2D convolution without biases.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, dilation: int = 1):
        super(Model, self).__init__()
        padding = dilation * (kernel_size - 1) // 2
        self.depthwise = nn.Conv2d(
            in_channels, in_channels, kernel_size, padding=padding, dilation=dilation, groups=in_channels, bias=False
        )
        self.pointwise = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.depthwise(x)
        x = self.pointwise(x)
        return x


# sizes
batch_size = 32
in_channels = 64
out_channels = 144
height = 112
width = 128


def get_inputs():
    x = torch.rand(batch_size, in_channels, height, width)
    return [x]


def get_init_inputs():
    return [in_channels, out_channels, 3, 2]


SMALL = {"batch_size": 2, "in_channels": 4, "out_channels": 9, "height": 14, "width": 16}
