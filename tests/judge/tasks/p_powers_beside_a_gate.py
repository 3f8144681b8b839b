import torch
import torch.nn as nn

batch_size = 4096
features = 512
out_features = 2048


class Model(nn.Module):
    """A linear layer's answer beside powers of its input."""

    def __init__(self, features, out_features):
        super().__init__()
        self.linear = nn.Linear(features, out_features)

    def forward(self, x):
        x = x + 10.0
        return torch.cat([torch.sigmoid(self.linear(x)), x**2, x**4, x**8], dim=1)


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features, out_features]
