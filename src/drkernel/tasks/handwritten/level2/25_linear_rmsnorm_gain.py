"""matmul chain: a product with a weight that is stored as (in, out), RMS norm, and a gain per feature."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """x @ W, divided by the root mean square of each row, times a learned gain."""

    def __init__(self, in_features: int, out_features: int, eps: float = 1e-6):
        super(Model, self).__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features) * in_features**-0.5)
        self.gain = nn.Parameter(torch.ones(out_features))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.matmul(x, self.weight)
        rms = torch.sqrt(torch.mean(y**2, dim=-1, keepdim=True) + self.eps)
        return y / rms * self.gain


batch_size = 24
seq_len = 512
in_features = 640
out_features = 2560


def get_inputs():
    x = torch.randn(batch_size, seq_len, in_features)
    return [x]


def get_init_inputs():
    return [in_features, out_features]
