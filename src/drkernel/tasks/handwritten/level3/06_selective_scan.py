"""recurrence: a state space model whose step size and projections depend on the input."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 12
STEPS = 24
DIM = 512
STATE = 16


class Model(nn.Module):
    def __init__(self, dim, state):
        super().__init__()
        self.log_decay = nn.Parameter(torch.rand(dim, state))
        self.project = nn.Linear(dim, 2 * state, bias=False)
        self.step = nn.Linear(dim, dim)
        self.skip = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        write, read = self.project(x).chunk(2, dim=-1)
        delta = F.softplus(self.step(x))
        decay = -torch.exp(self.log_decay)
        state = torch.zeros(x.shape[0], *decay.shape, dtype=x.dtype, device=x.device)
        outputs = []
        for t in range(x.shape[1]):
            dt = delta[:, t, :, None]
            state = torch.exp(dt * decay) * state + dt * write[:, t, None] * x[:, t, :, None]
            outputs.append((state * read[:, t, None]).sum(dim=-1))
        return torch.stack(outputs, dim=1) + self.skip * x


def get_inputs():
    return [torch.randn(BATCH, STEPS, DIM)]


def get_init_inputs():
    return [DIM, STATE]
