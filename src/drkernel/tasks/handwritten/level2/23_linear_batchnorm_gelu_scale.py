"""matmul chain: batch norm, GELU and a learned factor for all behind a linear layer."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Linear layer, BatchNorm1d, GELU, multiplication by a learned scalar.
    """

    def __init__(self, in_features, out_features, bn_eps=1e-5, bn_momentum=0.1, scale_shape=(1,)):
        super(Model, self).__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.bn = nn.BatchNorm1d(out_features, eps=bn_eps, momentum=bn_momentum)
        self.gelu = nn.GELU()
        self.scale = nn.Parameter(torch.ones(scale_shape))

    def forward(self, x):
        x = self.gemm(x)
        x = self.bn(x)
        x = self.gelu(x)
        x = self.scale * x
        return x


batch_size = 2048
in_features = 3072
out_features = 5120
bn_eps = 1e-4
bn_momentum = 0.05
scale_shape = (1,)


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, bn_eps, bn_momentum, scale_shape]
