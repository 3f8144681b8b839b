import torch
import torch.nn as nn

batch_size = 1024
steps = 64
width = 4096


class Model(nn.Module):
    def forward(self, x):
        return x.mean(1)


def get_inputs():
    return [torch.randn(batch_size, steps, width)]


def get_init_inputs():
    return []
