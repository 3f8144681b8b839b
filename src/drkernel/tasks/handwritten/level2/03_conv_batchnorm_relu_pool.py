"""convolution chain: batch norm, ReLU and max pooling after a 3 x 3 convolution."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 64
IN = 48
OUT = 80
HEIGHT = 56
WIDTH = 88


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x):
        return F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)


def get_inputs():
    return [torch.randn(BATCH, IN, HEIGHT, WIDTH)]


def get_init_inputs():
    return [IN, OUT]
