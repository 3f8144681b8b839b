"""rotation: pairs of features are turned by an angle that grows with the position."""

import torch
import torch.nn as nn

BATCH = 16
HEADS = 12
SEQ = 2560
HALF = 64


class Model(nn.Module):
    def forward(self, x, angles):
        cos, sin = angles.cos(), angles.sin()
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


def get_inputs():
    return [torch.randn(BATCH, HEADS, SEQ, 2 * HALF), torch.rand(SEQ, HALF) * 6.28]


def get_init_inputs():
    return []
