"""pooling: the mean of overlapping blocks of a volume; what lies outside does not count."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.pool = nn.AvgPool3d(kernel_size, stride=stride, padding=padding, count_include_pad=False)

    def forward(self, x):
        return self.pool(x)


BATCH = 16
CHANNELS = 24
DEPTH = 40
HEIGHT = 96
WIDTH = 112


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, DEPTH, HEIGHT, WIDTH)]


def get_init_inputs():
    return [3, 2, 1]


SMALL = {"BATCH": 2, "CHANNELS": 3, "DEPTH": 5, "HEIGHT": 12, "WIDTH": 14}
