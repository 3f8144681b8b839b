"""convolution: one 5 x 5 filter for each channel."""

import torch
import torch.nn as nn

BATCH = 32
CHANNELS = 96
HEIGHT = 112
WIDTH = 160


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=5, padding=2, groups=channels, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS]
