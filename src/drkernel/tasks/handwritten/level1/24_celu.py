"""activation: CELU with a steepness of its own."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """CELU of every element."""

    def __init__(self, alpha: float = 1.0):
        """
        Args:
            alpha (float): where the curve levels off on the negative side is -alpha.
        """
        super(Model, self).__init__()
        self.alpha = alpha

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.celu(x, alpha=self.alpha)


batch_size = 2048
dim = 65536


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return [1.75]


SMALL = {"batch_size": 32, "dim": 256}
