import torch
import torch.nn as nn

batch = 16
C = 32
K = 1
H = 128


class Model(nn.Module):
    def __init__(self, C, K):
        super().__init__()
        self.conv = nn.Conv2d(C, K, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x)) * 0.5


def get_inputs():
    return [torch.randn(batch, C, H, H)]


def get_init_inputs():
    return [C, K]
