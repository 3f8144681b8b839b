"""norm: every channel of every volume gets mean 0 and variance 1."""

import torch
import torch.nn as nn

batch_size = 16
features = 48
depth = 24
height = 80
width = 96


class Model(nn.Module):
    """
    Instance normalization over volumes.
    """

    def __init__(self, num_features: int):
        """
        Args:
            num_features (int): how many channels a volume has
        """
        super(Model, self).__init__()
        self.norm = nn.InstanceNorm3d(num_features, affine=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs():
    x = torch.rand(batch_size, features, depth, height, width)
    return [x]


def get_init_inputs():
    return [features]


SMALL = {"batch_size": 4, "features": 6, "depth": 3, "height": 10, "width": 12}
