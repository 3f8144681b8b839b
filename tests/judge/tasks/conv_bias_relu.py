import torch
import torch.nn as nn

batch_size = 16
in_channels = 32
out_channels = 64
height = 64
width = 64
kernel_size = 3


class Model(nn.Module):
    """Convolution, ReLU, then a bias per channel."""

    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x):
        x = self.conv(x)
        x = torch.relu(x)
        return x + self.bias


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
