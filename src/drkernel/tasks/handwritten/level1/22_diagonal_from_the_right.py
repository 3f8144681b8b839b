"""matmul: by a diagonal matrix from the right, of which only the diagonal is given."""

import torch
import torch.nn as nn

M = 4608
N = 3072


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()

    def forward(self, X, d):
        """
        Args:
            X: dense matrix (M, N)
            d: the diagonal, (N,)
        """
        return X @ torch.diag(d)


def get_inputs():
    X = torch.randn(M, N)
    d = torch.randn(N)
    return [X, d]


def get_init_inputs():
    return []
