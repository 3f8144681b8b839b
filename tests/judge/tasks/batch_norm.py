import torch
import torch.nn as nn

batch_size = 64
features = 32
side = 64


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm2d(features)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(batch_size, features, side, side)]


def get_init_inputs():
    return [features]
