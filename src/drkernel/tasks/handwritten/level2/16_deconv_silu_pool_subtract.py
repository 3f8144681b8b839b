"""convolution chain: a transposed convolution, SiLU, max pooling, and a constant taken away."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """
    Twice the size by a transposed convolution, and back by pooling.
    """

    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, pool_size, constant):
        super(Model, self).__init__()
        self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.pool = nn.MaxPool2d(pool_size)
        self.constant = constant

    def forward(self, x):
        """
        Args:
            x (torch.Tensor): (batch_size, in_channels, height, width)

        Returns:
            torch.Tensor: (batch_size, out_channels, height * stride // pool_size, width * stride // pool_size)
        """
        x = self.conv_transpose(x)
        x = F.silu(x)
        x = self.pool(x)
        return x - self.constant


batch_size = 32
in_channels = 24
out_channels = 40
height = 48
width = 64


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, 4, 2, 1, 2, 0.3]


SMALL = {"batch_size": 4, "in_channels": 3, "out_channels": 5, "height": 6, "width": 8}
