"""matmul chain: a second bias, limits on both sides, and the sum of each row."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """
    One number for each sample: the sum of its features, each within limits.
    """

    def __init__(self, input_size, hidden_size, min_value, max_value):
        super(Model, self).__init__()
        self.matmul = nn.Linear(input_size, hidden_size)
        self.bias = nn.Parameter(torch.randn(hidden_size))
        self.min_value = min_value
        self.max_value = max_value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.matmul(x)
        x = x + self.bias
        x = torch.clamp(x, self.min_value, self.max_value)
        x = x.sum(dim=1, keepdim=True)  # (batch_size, 1)
        return x


batch_size = 1024
input_size = 4096
hidden_size = 6144
min_value = -0.75
max_value = 1.5


def get_inputs():
    return [torch.rand(batch_size, input_size)]


def get_init_inputs():
    return [input_size, hidden_size, min_value, max_value]


SMALL = {"batch_size": 32, "input_size": 128, "hidden_size": 96}
