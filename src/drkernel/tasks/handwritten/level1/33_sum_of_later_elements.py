"""scan: the sum of all later elements along the middle dimension."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """
    What is still to come: element i becomes the sum of the elements behind it.

    Args:
        dim (int): where the elements stand
    """

    def __init__(self, dim):
        super(Model, self).__init__()
        self.dim = dim

    def forward(self, x):
        from_here = torch.flip(torch.cumsum(torch.flip(x, dims=[self.dim]), dim=self.dim), dims=[self.dim])
        return from_here - x


batch_size = 80
input_shape = (1536, 512)
dim = 1


def get_inputs():
    return [torch.rand(batch_size, *input_shape)]


def get_init_inputs():
    return [dim]
