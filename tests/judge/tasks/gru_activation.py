import torch
import torch.nn as nn

steps = 64
batch = 128
features = 128
hidden = 256


class Model(nn.Module):
    """A GRU of two layers and an activation by hand."""

    def __init__(self, features, hidden):
        super().__init__()
        self.gru = nn.GRU(features, hidden, num_layers=2)

    def forward(self, x):
        y = self.gru(x)[0]
        return y * torch.sigmoid(y) + 0.5 * torch.abs(y) - 0.25


def get_inputs():
    return [torch.randn(steps, batch, features)]


def get_init_inputs():
    return [features, hidden]
