"""matmul chain: one input decides how much of the other, transformed, is added to it."""

import torch
import torch.nn as nn

batch_size = 2560
dim = 2048
context_dim = 1024


class Model(nn.Module):
    """
    Gated residual update.

    Args:
        dim: width of the state
        context_dim: width of the context
    """

    def __init__(self, dim, context_dim):
        super(Model, self).__init__()
        self.gate = nn.Linear(dim, dim)
        self.update = nn.Linear(context_dim, dim)

    def forward(self, state, context):
        """
        Args:
            state: (batch_size, dim)
            context: (batch_size, context_dim)
        Returns:
            The new state, (batch_size, dim).
        """
        g = torch.sigmoid(self.gate(state))
        u = torch.tanh(self.update(context))
        return state + g * u


def get_inputs():
    return [torch.randn(batch_size, dim), torch.randn(batch_size, context_dim)]


def get_init_inputs():
    return [dim, context_dim]
