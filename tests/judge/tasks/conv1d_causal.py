import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 8
channels = 1024
length = 2048
taps = 4


class Model(nn.Module):
    """The short causal convolution of state space models, and SiLU."""

    def __init__(self, channels, taps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, taps))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        taps = self.weight.shape[1]
        y = F.conv1d(F.pad(x, (taps - 1, 0)), self.weight[:, None, :], self.bias, groups=x.shape[1])
        return F.silu(y)


def get_inputs():
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs():
    return [channels, taps]
