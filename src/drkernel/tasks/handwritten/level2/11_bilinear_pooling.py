"""matmul chain: covariance of an image's channels, signed square root, and unit length of the whole."""

import torch
import torch.nn as nn

BATCH = 160
CHANNELS = 192
PIXELS = 784


class Model(nn.Module):
    def forward(self, x):
        x = x - x.mean(dim=2, keepdim=True)
        pooled = x @ x.transpose(1, 2) / x.shape[2]
        rooted = torch.sign(pooled) * torch.sqrt(pooled.abs() + 1e-4)
        return rooted / rooted.flatten(1).norm(dim=1)[:, None, None].clamp_min(1e-6)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, PIXELS)]


def get_init_inputs():
    return []
