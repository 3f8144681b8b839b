import torch
import torch.nn as nn

batch = 16
length = 64
channels = 1024


class Model(nn.Module):
    """h[t] = a[t] * h[t - 1] + b[t], the scan of gated linear models."""

    def forward(self, a, b):
        h = torch.zeros_like(b[:, 0])
        states = []
        for t in range(b.shape[1]):
            h = a[:, t] * h + b[:, t]
            states.append(h)
        return torch.stack(states, dim=1)


def get_inputs():
    return [torch.rand(batch, length, channels), torch.randn(batch, length, channels)]


def get_init_inputs():
    return []
