"""matmul: what lies above the diagonal of the first matrix does not count."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Lower triangle of a square matrix times a dense matrix.
    """

    def __init__(self):
        super().__init__()

    def forward(self, square: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        return torch.tril(square) @ dense


SIZE = 3584
COLUMNS = 1792


def get_inputs():
    return [torch.randn(SIZE, SIZE), torch.randn(SIZE, COLUMNS)]


def get_init_inputs():
    return []


SMALL = {"SIZE": 224, "COLUMNS": 112}
