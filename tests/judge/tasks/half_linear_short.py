import torch
import torch.nn as nn

batch = 16
in_features = 2**12
out_features = 64


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=torch.bfloat16)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(batch, in_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [in_features, out_features]
