"""convolution chain: a convolution in space and time, the mean over time, hard swish, and a gain per channel."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16
IN = 3
OUT = 48
FRAMES = 12
HEIGHT = 56
WIDTH = 80


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size=3, padding=1)
        self.gain = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x):
        return F.hardswish(self.conv(x).mean(dim=2)) * self.gain


def get_inputs():
    return [torch.randn(BATCH, IN, FRAMES, HEIGHT, WIDTH)]


def get_init_inputs():
    return [IN, OUT]
