"""matmul chain: a linear layer without bias, limits, a factor, and the largest value of each row taken away."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """
    Gemm -> hardtanh -> scaling -> subtraction of the row maximum.
    """

    def __init__(self, in_features, out_features, scaling_factor, hardtanh_min, hardtanh_max):
        super(Model, self).__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)
        self.scaling_factor = scaling_factor
        self.hardtanh_min = hardtanh_min
        self.hardtanh_max = hardtanh_max

    def forward(self, x):
        x = self.gemm(x)
        x = F.hardtanh(x, min_val=self.hardtanh_min, max_val=self.hardtanh_max)
        x = x * self.scaling_factor
        x = x - torch.max(x, dim=1, keepdim=True).values
        return x


batch_size = 1536
in_features = 2560
out_features = 7168
scaling_factor = 0.7
hardtanh_min = -0.5
hardtanh_max = 2.5


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, scaling_factor, hardtanh_min, hardtanh_max]
