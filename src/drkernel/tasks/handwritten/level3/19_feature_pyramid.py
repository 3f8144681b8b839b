"""cnn: a feature pyramid: coarse maps are enlarged and added to finer ones, then each is smoothed."""

from typing import List

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, widths: List[int], channels: int):
        """
        :param widths: channels of the fine, the middle and the coarse map
        :param channels: channels of all outputs
        """
        super(Model, self).__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(width, channels, kernel_size=1) for width in widths)
        self.smooth = nn.ModuleList(nn.Conv2d(channels, channels, kernel_size=3, padding=1) for _ in widths)

    def forward(self, fine, middle, coarse):
        fine, middle, coarse = (layer(x) for layer, x in zip(self.lateral, (fine, middle, coarse)))
        middle = middle + F.interpolate(coarse, scale_factor=2, mode="nearest")
        fine = fine + F.interpolate(middle, scale_factor=2, mode="nearest")
        return tuple(layer(x) for layer, x in zip(self.smooth, (fine, middle, coarse)))


batch_size = 16
fine, middle, coarse = 64, 128, 256
widths = [fine, middle, coarse]
channels = 96
rows = 14
cols = 20


def get_inputs():
    return [
        torch.randn(batch_size, widths[0], 4 * rows, 4 * cols),
        torch.randn(batch_size, widths[1], 2 * rows, 2 * cols),
        torch.randn(batch_size, widths[2], rows, cols),
    ]


def get_init_inputs():
    return [widths, channels]


SMALL = {"batch_size": 2, "fine": 4, "middle": 8, "coarse": 16, "channels": 12, "rows": 6, "cols": 5}
