import torch
import torch.nn as nn

batch_size = 16
channels = 64
height = 128
width = 128


class Model(nn.Module):
    """Depthwise 3x3 convolution."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels]
