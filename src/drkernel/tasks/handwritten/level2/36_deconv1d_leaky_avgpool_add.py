"""convolution chain: a transposed convolution along a signal, leaky ReLU, averages, and a constant."""

import torch
import torch.nn as nn

batch_size = 48
in_channels = 64
out_channels = 48
length = 6144
add_value = 0.2


class Model(nn.Module):
    """Upsamples a signal by 4, applies leaky ReLU, smooths with an average pool and adds a constant."""

    def __init__(self, in_channels, out_channels, add_value):
        super(Model, self).__init__()
        self.conv_transpose = nn.ConvTranspose1d(in_channels, out_channels, kernel_size=8, stride=4, padding=2)
        self.act = nn.LeakyReLU(0.2)
        self.avg_pool = nn.AvgPool1d(kernel_size=3, stride=1, padding=1)
        self.add_value = add_value

    def forward(self, x):
        x = self.conv_transpose(x)
        x = self.act(x)
        x = self.avg_pool(x)
        x = x + self.add_value
        return x


def get_inputs():
    return [torch.rand(batch_size, in_channels, length)]


def get_init_inputs():
    return [in_channels, out_channels, add_value]
