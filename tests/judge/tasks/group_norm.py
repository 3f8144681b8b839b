import torch
import torch.nn as nn

batch_size = 32
features = 64
groups = 8
dim1 = 64
dim2 = 64


class Model(nn.Module):
    """Group normalisation."""

    def __init__(self, features, groups):
        super().__init__()
        self.gn = nn.GroupNorm(groups, features)

    def forward(self, x):
        return self.gn(x)


def get_inputs():
    return [torch.rand(batch_size, features, dim1, dim2)]


def get_init_inputs():
    return [features, groups]
