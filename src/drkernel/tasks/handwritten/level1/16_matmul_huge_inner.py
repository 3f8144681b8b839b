"""matmul: few rows times few columns over a very long inner dimension."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Matrix product whose inner dimension is far larger than both outer ones.
    """

    def __init__(self):
        super(Model, self).__init__()

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        """
        Args:
            A: left factor of shape (M, K).
            B: right factor of shape (K, N).

        Returns:
            The product, of shape (M, N).
        """
        return torch.matmul(A, B)


M = 192
N = 320
K = 163840


def get_inputs():
    A = torch.rand(M, K)
    B = torch.rand(K, N)
    return [A, B]


def get_init_inputs():
    return []  # the model has no arguments


SMALL = {"M": 24, "N": 40, "K": 320}
