"""convolution chain: magnitudes of filter responses, the strongest of each channel, and a factor per channel."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride):
        super(Model, self).__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride)
        self.weight = nn.Parameter(torch.rand(1, out_channels, 1, 1))

    def forward(self, x):
        x = torch.abs(self.conv(x))
        x = torch.amax(x, dim=(2, 3), keepdim=True)
        return x * self.weight


BATCH_SIZE = 64
IN_CHANNELS = 3
OUT_CHANNELS = 112
HEIGHT, WIDTH = 192, 256


def get_inputs():
    return [torch.randn(BATCH_SIZE, IN_CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS, 7, 2]


SMALL = {"BATCH_SIZE": 4, "OUT_CHANNELS": 14, "HEIGHT": 24, "WIDTH": 32}
