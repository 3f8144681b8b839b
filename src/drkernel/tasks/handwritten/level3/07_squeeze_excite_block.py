"""cnn: an inverted residual: expansion, depthwise convolution, channel attention, projection."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
CHANNELS = 24
EXPANDED = 160
SQUEEZED = 6
HEIGHT = 56
WIDTH = 80


class Model(nn.Module):
    def __init__(self, channels, expanded, squeezed):
        super().__init__()
        self.expand = nn.Conv2d(channels, expanded, 1)
        self.depthwise = nn.Conv2d(expanded, expanded, 3, padding=1, groups=expanded)
        self.squeeze = nn.Linear(expanded, squeezed)
        self.excite = nn.Linear(squeezed, expanded)
        self.project = nn.Conv2d(expanded, channels, 1)

    def forward(self, x):
        h = F.silu(self.depthwise(F.silu(self.expand(x))))
        weights = torch.sigmoid(self.excite(F.silu(self.squeeze(h.mean(dim=(2, 3))))))
        return x + self.project(h * weights[:, :, None, None])


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, EXPANDED, SQUEEZED]
