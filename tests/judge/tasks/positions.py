import torch
import torch.nn as nn

rows = 4096
cols = 2048


class Model(nn.Module):
    def forward(self, x, position):
        return x + torch.sin(0.01 * position)


def get_inputs():
    return [torch.randn(rows, cols), torch.arange(cols).float()]


def get_init_inputs():
    return []
