import torch
import torch.nn as nn

batch_size = 32
in_channels = 16
out_channels = 32
size = 64


class Model(nn.Module):
    """Convolution, a factor per channel, max pooling, clamp."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(out_channels, 1, 1))
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        return torch.clamp(self.pool(self.conv(x) * self.scale), -1.0, 1.0)


def get_inputs():
    return [torch.randn(batch_size, in_channels, size, size)]


def get_init_inputs():
    return [in_channels, out_channels]
