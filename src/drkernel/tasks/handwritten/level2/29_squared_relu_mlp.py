"""matmul chain: two linear layers with a squared ReLU between them."""

import torch
import torch.nn as nn

tokens = 3072
dim = 1152
hidden = 4608


class Model(nn.Module):
    def __init__(self, dim, hidden):
        super(Model, self).__init__()
        self.fc = nn.Linear(dim, hidden, bias=False)
        self.proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        x = self.fc(x)
        x = torch.relu(x).square()
        x = self.proj(x)
        return x


def get_inputs():
    return [torch.randn(tokens, dim)]


def get_init_inputs():
    return [dim, hidden]
