"""convolution chain: the input is added to its convolution, then group norm and Mish."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
GROUPS = 4
PER_GROUP = 16
HEIGHT = 80
WIDTH = 56


class Model(nn.Module):
    def __init__(self, groups, per_group):
        super().__init__()
        channels = groups * per_group
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1)
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return F.mish(self.norm(x + self.conv(x)))


def get_inputs():
    return [torch.randn(BATCH, GROUPS * PER_GROUP, HEIGHT, WIDTH)]


def get_init_inputs():
    return [GROUPS, PER_GROUP]
