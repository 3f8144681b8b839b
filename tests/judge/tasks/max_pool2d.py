import torch
import torch.nn as nn

batch_size = 16
channels = 64
height = 112
width = 112


class Model(nn.Module):
    """The pooling at the start of a ResNet."""

    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.maxpool = nn.MaxPool2d(kernel_size, stride, padding)

    def forward(self, x):
        return self.maxpool(x)


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [3, 2, 1]
