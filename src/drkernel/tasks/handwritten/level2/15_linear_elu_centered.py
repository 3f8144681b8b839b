"""matmul chain: ELU behind a linear layer, and the mean of each row taken away."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features, alpha):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.elu = nn.ELU(alpha)

    def forward(self, x):
        h = self.elu(self.linear(x))
        return h - h.mean(dim=-1, keepdim=True)


BATCH = 768
IN_FEATURES = 2048
OUT_FEATURES = 12288


def get_inputs():
    return [torch.randn(BATCH, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES, 0.8]
