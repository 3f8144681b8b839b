"""recurrence: a gated recurrent unit over a short sequence, step by step."""

import torch
import torch.nn as nn

BATCH = 640
STEPS = 12
IN = 192
HIDDEN = 256


class Model(nn.Module):
    def __init__(self, in_features, hidden):
        super().__init__()
        self.hidden = hidden
        self.from_input = nn.Linear(in_features, 3 * hidden)
        self.from_state = nn.Linear(hidden, 3 * hidden)

    def forward(self, x):
        state = torch.zeros(x.shape[0], self.hidden, dtype=x.dtype, device=x.device)
        for step in range(x.shape[1]):
            reset_x, update_x, new_x = self.from_input(x[:, step]).chunk(3, dim=-1)
            reset_h, update_h, new_h = self.from_state(state).chunk(3, dim=-1)
            update = torch.sigmoid(update_x + update_h)
            new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
            state = update * state + (1 - update) * new
        return state


def get_inputs():
    return [torch.randn(BATCH, STEPS, IN)]


def get_init_inputs():
    return [IN, HIDDEN]
