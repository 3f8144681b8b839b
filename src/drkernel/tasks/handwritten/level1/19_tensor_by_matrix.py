"""matmul: a tensor of three dimensions times one matrix, which all of its slices share."""

import torch
import torch.nn as nn

batch_size = 48
positions = 384
features_in = 768
features_out = 1280


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()

    def forward(self, x, weight):
        """
        Contracts the last dimension of x with the first one of weight.

        Args:
            x (torch.Tensor): (batch_size, positions, features_in)
            weight (torch.Tensor): (features_in, features_out)

        Returns:
            torch.Tensor: (batch_size, positions, features_out)
        """
        return torch.einsum("bpi,io->bpo", x, weight)


def get_inputs():
    x = torch.rand(batch_size, positions, features_in)
    weight = torch.rand(features_in, features_out)
    return [x, weight]


def get_init_inputs():
    return []


SMALL = {"batch_size": 6, "positions": 20, "features_in": 48, "features_out": 40}
