import torch
import torch.nn as nn

batch_size = 16
channels = 64
size = 56


class Model(nn.Module):
    """The usual block of a ResNet: convolution, batch norm, ReLU."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))


def get_inputs():
    return [torch.randn(batch_size, channels, size, size)]


def get_init_inputs():
    return [channels]
