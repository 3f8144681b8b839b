import torch
import torch.nn as nn

rows = 2048
in_features = 2048
out_features = 4096


class Model(nn.Module):
    """A linear layer and ReLU in half precision."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features).half()

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(rows, in_features).half()]


def get_init_inputs():
    return [in_features, out_features]
