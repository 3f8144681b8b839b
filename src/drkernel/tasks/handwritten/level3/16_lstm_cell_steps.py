"""recurrence: an LSTM cell, stepped through a short sequence from given states, and a head on the last one."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, input_size: int, hidden_size: int, output_size: int):
        """
        Args:
            input_size: features of a step
            hidden_size: width of the hidden and the cell state
            output_size: width of the output
        """
        super(Model, self).__init__()
        self.x2h = nn.Linear(input_size, 4 * hidden_size)
        self.h2h = nn.Linear(hidden_size, 4 * hidden_size, bias=False)
        self.head = nn.Linear(hidden_size, output_size)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        for step in x.unbind(dim=1):
            i, f, g, o = (self.x2h(step) + self.h2h(h)).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


batch_size = 192
steps = 12
input_size = 160
hidden_size = 384
output_size = 40


def get_inputs():
    return [
        torch.randn(batch_size, steps, input_size),
        torch.zeros(batch_size, hidden_size),
        torch.zeros(batch_size, hidden_size),
    ]


def get_init_inputs():
    return [input_size, hidden_size, output_size]


SMALL = {"batch_size": 6, "input_size": 20, "hidden_size": 48}
