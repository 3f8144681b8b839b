import torch
import torch.nn as nn

batch_size = 2048
features = 4096


class Model(nn.Module):
    """Three scores of each sample, and its energy in counts."""

    def __init__(self, features):
        super().__init__()
        self.hidden = nn.Linear(features, features, bias=False)
        self.scores = nn.Linear(features, 3)

    def forward(self, x):
        scores = self.scores(torch.tanh(self.hidden(x)))
        energy = torch.sum(x * x, dim=1, keepdim=True) * 1e6
        return torch.cat([scores, energy], dim=1)


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features]
