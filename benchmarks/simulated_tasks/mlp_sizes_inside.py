import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = 8192
        self.up = nn.Linear(2048, self.hidden)
        self.middle = nn.Linear(self.hidden, self.hidden)
        self.down = nn.Linear(self.hidden, 2048)
        self.norm = nn.LayerNorm(2048)

    def forward(self, x):
        return self.norm(self.down(F.gelu(self.middle(F.gelu(self.up(x))))))


def get_inputs():
    return [torch.rand(64, 2048)]


def get_init_inputs():
    return []
