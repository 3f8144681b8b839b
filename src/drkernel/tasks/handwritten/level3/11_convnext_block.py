"""cnn: depthwise 7 x 7 convolution, layer norm over channels, an inverted bottleneck, layer scale, residual."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16
CHANNELS = 96
HEIGHT = 56
WIDTH = 80


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.expand = nn.Linear(channels, 4 * channels)
        self.reduce = nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, x):
        h = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        h = self.scale * self.reduce(F.gelu(self.expand(h)))
        return x + h.permute(0, 3, 1, 2)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS]
