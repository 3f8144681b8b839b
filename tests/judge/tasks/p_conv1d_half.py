import torch
import torch.nn as nn

batch = 64
C = 128
K = 256
L = 4096


class Model(nn.Module):
    def __init__(self, C, K):
        super().__init__()
        self.conv = nn.Conv1d(C, K, 5, padding=2)

    def forward(self, x):
        return torch.relu(self.conv(x)) * 0.5


def get_inputs():
    return [torch.randn(batch, C, L)]


def get_init_inputs():
    return [C, K]
