"""convolution chain: pointwise convolution, gate, depthwise convolution along time, and swish."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16
CHANNELS = 192
LENGTH = 2560


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.expand = nn.Conv1d(channels, 2 * channels, kernel_size=1)
        self.depthwise = nn.Conv1d(channels, channels, kernel_size=15, padding=7, groups=channels)

    def forward(self, x):
        x = F.glu(self.expand(x), dim=1)
        return F.silu(self.depthwise(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [CHANNELS]
