"""convolution chain: along a signal with a stride, GELU, maxima of pairs, and a bias per channel."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 64
IN = 16
OUT = 128
LENGTH = 16384


class Model(nn.Module):
    """1D convolution, GELU (tanh), max pooling, bias."""

    def __init__(self, in_channels, out_channels, kernel_size, stride):
        super(Model, self).__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, stride=stride, padding=kernel_size // 2)
        self.bias = nn.Parameter(torch.randn(out_channels, 1))

    def forward(self, x):
        x = F.gelu(self.conv(x), approximate="tanh")
        return F.max_pool1d(x, kernel_size=2) + self.bias


def get_inputs():
    return [torch.randn(BATCH, IN, LENGTH)]


def get_init_inputs():
    return [IN, OUT, 9, 2]


SMALL = {"BATCH": 4, "IN": 2, "OUT": 16, "LENGTH": 64}
