"""matmul chain: outputs of a linear layer end at a constant, then swish, and a vector taken away."""

import torch
import torch.nn as nn


class Model(nn.Module):
    # both the upper limit and the offset are learned

    def __init__(self, in_features, out_features, constant):
        super(Model, self).__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.constant = nn.Parameter(torch.tensor(constant))
        self.subtract = nn.Parameter(torch.rand(out_features))

    def forward(self, x):
        x = self.linear(x)
        x = torch.min(x, self.constant)
        x = x * torch.sigmoid(x)
        x = x - self.subtract
        return x


batch_size = 512
in_features = 8192
out_features = 10240
constant = 0.3


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, constant]


SMALL = {"batch_size": 32, "in_features": 64, "out_features": 80}
