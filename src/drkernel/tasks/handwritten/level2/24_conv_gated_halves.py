"""convolution chain: half of the channels gates the other half, as in gated image models, with a constant factor."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, gain):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, 2 * out_channels, kernel_size=3, padding=1)
        self.gain = gain

    def forward(self, x):
        value, gate = torch.chunk(self.conv(x), 2, dim=1)
        return self.gain * torch.tanh(value) * torch.sigmoid(gate)


batch_size = 32
in_channels = 40
out_channels = 40
height = 72
width = 88


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, 1.7]
