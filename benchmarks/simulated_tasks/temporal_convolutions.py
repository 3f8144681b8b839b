import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels=512, levels=8, kernel_size=3):
        super().__init__()
        self.embed = nn.Conv1d(64, channels, 1)
        self.convs = nn.ModuleList(
            [
                nn.Conv1d(channels, channels, kernel_size, padding=2**i * (kernel_size - 1) // 2, dilation=2**i)
                for i in range(levels)
            ]
        )
        self.norms = nn.ModuleList([nn.GroupNorm(8, channels) for _ in range(levels)])

    def forward(self, x):
        x = self.embed(x)
        for conv, norm in zip(self.convs, self.norms):
            x = x + F.relu(norm(conv(x)))
        return x


def get_inputs():
    return [torch.randn(16, 64, 4096)]


def get_init_inputs():
    return []
