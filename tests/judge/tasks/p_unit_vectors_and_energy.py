import torch
import torch.nn as nn

batch_size = 32768
features = 4096


class Model(nn.Module):
    """Unit embeddings of many tokens, and the energy of each."""

    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features - 1)

    def forward(self, x):
        y = nn.functional.normalize(self.linear(x), dim=1)
        return torch.cat([y, torch.sum(x * x, dim=1, keepdim=True) * 1e6], dim=1)


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features]
