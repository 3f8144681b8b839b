import torch
import torch.nn as nn

batch_size = 64
channels = 64
length = 8192


class Model(nn.Module):
    """1D average pooling."""

    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.pool = nn.AvgPool1d(kernel_size, stride, padding)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs():
    return [8, 2, 3]
