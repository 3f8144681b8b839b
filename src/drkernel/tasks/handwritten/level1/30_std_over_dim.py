"""reduction: the standard deviation along a chosen dimension of a tensor of three."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Sample standard deviation over one dimension.
    """

    def __init__(self, dim: int):
        """
        Args:
            dim (int): the dimension that is reduced.
        """
        super(Model, self).__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """
        Args:
            x (torch.Tensor): input of shape (batch_size, dim1, dim2).

        Returns:
            torch.Tensor: the deviation; the reduced dimension is kept with size 1.
        """
        return torch.std(x, dim=self.dim, keepdim=True)


batch_size = 96
dim1 = 1280
dim2 = 1792


def get_inputs():
    return [torch.randn(batch_size, dim1, dim2)]


def get_init_inputs():
    return [1]
