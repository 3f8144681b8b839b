import torch
import torch.nn as nn

batch = 64
steps = 512
features = 128
hidden = 256


class Model(nn.Module):
    """A recurrent network in bf16, of which the last state is the output."""

    def __init__(self, features, hidden):
        super().__init__()
        self.a = nn.Linear(features, hidden, dtype=torch.bfloat16)
        self.b = nn.Linear(hidden, hidden, dtype=torch.bfloat16)

    def forward(self, x):
        h = torch.zeros(x.shape[0], self.b.out_features, dtype=x.dtype, device=x.device)
        u = self.a(x)
        for t in range(x.shape[1]):
            h = torch.tanh(u[:, t] + self.b(h))
        return h


def get_inputs():
    return [torch.randn(batch, steps, features).bfloat16()]


def get_init_inputs():
    return [features, hidden]
