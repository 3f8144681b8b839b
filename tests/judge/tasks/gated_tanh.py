import torch
import torch.nn as nn

batch = 32
channels = 64
side = 64


class Model(nn.Module):
    """A gated residual block in fp16."""

    def __init__(self, channels):
        super().__init__()
        self.a = nn.Linear(channels, channels, dtype=torch.float16)
        self.gate = nn.Parameter(torch.ones(channels, dtype=torch.float16))

    def forward(self, x):
        return torch.relu(self.gate) * torch.tanh(self.a(x)) + x


def get_inputs():
    return [torch.randn(batch, side * side, channels).half()]


def get_init_inputs():
    return [channels]
