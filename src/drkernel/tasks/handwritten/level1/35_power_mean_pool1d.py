"""pooling: the length of the vector of samples in each of some overlapping windows along a signal."""

import torch
import torch.nn as nn

batch_size = 48
features = 160
samples = 16384

norm_type = 2.0
kernel_size = 6
stride = 2


class Model(nn.Module):
    """
    Pooling by the Euclidean norm.
    """

    def __init__(self, norm_type: float, kernel_size: int, stride: int):
        super(Model, self).__init__()
        self.pool = nn.LPPool1d(norm_type, kernel_size, stride=stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """
        Args:
            x (torch.Tensor): (batch_size, features, samples)
        Returns:
            torch.Tensor: (batch_size, features, windows)
        """
        return self.pool(x)


def get_inputs():
    return [torch.rand(batch_size, features, samples)]


def get_init_inputs():
    return [norm_type, kernel_size, stride]


SMALL = {"batch_size": 6, "features": 10, "samples": 64}
