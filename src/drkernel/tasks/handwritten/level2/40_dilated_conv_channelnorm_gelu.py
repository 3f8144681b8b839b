"""convolution chain: a dilated convolution, layer norm over the channels of each pixel, GELU, and a factor."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, dilation, scaling_factor):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=dilation, dilation=dilation)
        self.layer_norm = nn.LayerNorm(out_channels)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        x = self.conv(x)
        x = self.layer_norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        x = F.gelu(x)
        return x * self.scaling_factor


batch_size = 32
in_channels = 32
out_channels = 64
height = 64
width = 96


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, 2, 1.5]


SMALL = {"batch_size": 2, "in_channels": 4, "out_channels": 16, "height": 8, "width": 12}
