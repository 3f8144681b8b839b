import torch
import torch.nn as nn

tokens = 8192
hidden = 4096


class Model(nn.Module):
    """RMS norm of bf16 activations."""

    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.RMSNorm(hidden, eps=1e-6, dtype=torch.bfloat16)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(tokens, hidden).to(torch.bfloat16)]


def get_init_inputs():
    return [hidden]
