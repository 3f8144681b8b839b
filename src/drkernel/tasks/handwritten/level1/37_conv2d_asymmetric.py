"""convolution: of wide images with a kernel that is wider than high, with another stride in each direction."""

import torch
import torch.nn as nn

batch_size = 16
in_channels = 32
out_channels = 96
height = 96
width = 320


class Model(nn.Module):
    """
    Filters that look further to the sides than up and down.

    Args:
        in_channels (int): channels of an image
        out_channels (int): how many filters there are
        kernel_size (tuple): rows and columns of a filter
        stride (tuple, optional): step down and step to the right; (1, 1) if left out
        padding (tuple, optional): zeros above and below, zeros at the sides; none if left out
        bias (bool, optional): a learned constant for each filter
    """

    def __init__(self, in_channels, out_channels, kernel_size, stride=(1, 1), padding=(0, 0), bias=False):
        super(Model, self).__init__()
        self.conv2d = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv2d(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, (3, 7), (1, 2), (1, 3)]


SMALL = {"batch_size": 2, "in_channels": 4, "out_channels": 6, "height": 6, "width": 20}
