"""mlp: four experts answer every token; a router says how much each counts."""

import torch
import torch.nn as nn

TOKENS = 5120
DIM = 256
HIDDEN = 384
EXPERTS = 4


class Model(nn.Module):
    def __init__(self, dim, hidden, experts):
        super().__init__()
        self.router = nn.Linear(dim, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, dim, hidden) * dim**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, dim) * hidden**-0.5)

    def forward(self, x):
        shares = torch.softmax(self.router(x), dim=-1)
        answers = torch.relu(torch.einsum("td,edh->eth", x, self.up)).square() @ self.down
        return torch.einsum("te,etd->td", shares, answers)


def get_inputs():
    return [torch.randn(TOKENS, DIM)]


def get_init_inputs():
    return [DIM, HIDDEN, EXPERTS]
