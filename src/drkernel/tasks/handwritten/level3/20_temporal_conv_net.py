"""cnn: residual blocks of causal convolutions along time, with holes that double from block to block."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, channels, kernel_size, dilation):
        super().__init__()
        self.past = (kernel_size - 1) * dilation
        self.filter = nn.Conv1d(channels, channels, kernel_size, dilation=dilation)
        self.mix = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        h = self.filter(F.pad(x, (self.past, 0)))
        h = F.gelu(h)
        return x + self.mix(h)


class Model(nn.Module):
    def __init__(self, in_channels, channels, kernel_size, dilations, classes):
        super().__init__()
        self.embed = nn.Conv1d(in_channels, channels, 1)
        self.blocks = nn.ModuleList([Block(channels, kernel_size, d) for d in dilations])
        self.classify = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.classify(x.mean(dim=2))  # over time


batch_size = 32
in_channels = 12
channels = 96
length = 2048
classes = 6


def get_inputs():
    return [torch.randn(batch_size, in_channels, length)]


def get_init_inputs():
    return [in_channels, channels, 4, [1, 2, 4], classes]


SMALL = {"batch_size": 4, "channels": 24, "length": 64}
