"""convolution: transposed, over volumes, in groups, doubling every side."""

import torch
import torch.nn as nn

batch_size = 8
in_channels = 48
out_channels = 24
depth, height, width = 12, 28, 36


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, groups):
        super(Model, self).__init__()
        self.deconv = nn.ConvTranspose3d(
            in_channels,
            out_channels,
            kernel_size=3,
            stride=2,
            padding=1,
            output_padding=1,
            groups=groups,
        )

    def forward(self, x):
        return self.deconv(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, 4]


SMALL = {"batch_size": 2, "in_channels": 8, "out_channels": 4, "depth": 3, "height": 7, "width": 9}
