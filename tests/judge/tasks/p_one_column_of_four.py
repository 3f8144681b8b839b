import torch
import torch.nn as nn

batch_size = 32
tokens = 2048
width = 1024


class Model(nn.Module):
    """Four numbers for each token: skewness, kurtosis, spread, and energy."""

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        spread = centred.square().mean(-1).sqrt() + 1.0
        skewness = (centred**3).mean(-1) / spread**3
        kurtosis = (centred**4).mean(-1) / spread**4
        energy = x.square().sum(-1)
        return torch.stack([skewness, kurtosis, torch.log(spread), energy], dim=-1)


def get_inputs():
    return [torch.randn(batch_size, tokens, width) * 32768.0]


def get_init_inputs():
    return []
