"""convolution chain: an upsampling step of an image generator, with noise added behind tanh."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super(Model, self).__init__()
        self.deconv = nn.ConvTranspose2d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, bias=False
        )
        self.batch_norm = nn.BatchNorm2d(out_channels)
        self.strength = nn.Parameter(torch.full((1, out_channels, 1, 1), 0.1))

    def forward(self, x, noise):
        x = self.deconv(x)
        x = self.batch_norm(x)
        x = torch.tanh(x)
        return x + self.strength * noise


batch_size = 64
in_channels = 80
out_channels = 32
size = 32


def get_inputs():
    x = torch.randn(batch_size, in_channels, size, size)
    noise = torch.randn(batch_size, 1, 2 * size, 2 * size)
    return [x, noise]


def get_init_inputs():
    return [in_channels, out_channels, 4, 2, 1]


SMALL = {"batch_size": 4, "in_channels": 10, "out_channels": 4, "size": 8}
