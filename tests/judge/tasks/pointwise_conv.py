import torch
import torch.nn as nn

batch_size = 16
in_channels = 128
out_channels = 256
height = 56
width = 56


class Model(nn.Module):
    """A 1x1 convolution in fp16."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv1d = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=True).half()

    def forward(self, x):
        return self.conv1d(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width).half()]


def get_init_inputs():
    return [in_channels, out_channels]
