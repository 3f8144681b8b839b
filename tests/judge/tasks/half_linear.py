import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 1024
in_features = 2048
out_features = 4096


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=torch.bfloat16)

    def forward(self, x):
        return F.relu(self.linear(x))


def get_inputs():
    return [torch.randn(batch_size, in_features).to(torch.bfloat16)]


def get_init_inputs():
    return [in_features, out_features]
