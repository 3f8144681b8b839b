import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 2048
cols = 8192


class Model(nn.Module):
    """Subtracts, multiplies and applies Mish."""

    def __init__(self, subtract, multiply):
        super().__init__()
        self.subtract = subtract
        self.multiply = multiply

    def forward(self, x):
        x = x - self.subtract
        x = x * self.multiply
        return F.mish(x)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return [0.25, 1.5]
