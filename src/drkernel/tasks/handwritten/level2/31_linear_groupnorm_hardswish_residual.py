"""matmul chain: group norm and hard swish behind a linear layer, and a second input added at the end."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, in_features, out_features, num_groups):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.group_norm = nn.GroupNorm(num_groups, out_features)

    def forward(self, x, y):
        h = self.group_norm(self.linear(x))
        h = F.hardswish(h)
        return h + y


batch_size = 6144
in_features = 1024
out_features = 3072
num_groups = 12


def get_inputs():
    return [torch.randn(batch_size, in_features), torch.randn(batch_size, out_features)]


def get_init_inputs():
    return [in_features, out_features, num_groups]


SMALL = {"batch_size": 48, "in_features": 64, "out_features": 192}
