import torch
import torch.nn as nn

batch_size = 4096
features = 4096


class Model(nn.Module):
    """RMS norm, then eight bits for each number with a scale for each row (dynamic quantisation of activations)."""

    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        y = x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-6) * self.weight
        scale = y.abs().amax(dim=1, keepdim=True) / 127.0
        return torch.round(y / scale).to(torch.int8), scale


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features]
