import torch
import torch.nn as nn

rows = 1024
cols = 2048


class Model(nn.Module):
    def forward(self, x, mask, lengths):
        return torch.sum(x * mask, dim=-1) / mask.sum(dim=-1)


def get_inputs():
    lengths = torch.randint(1, cols, (rows,))
    mask = torch.arange(cols)[None, :] < lengths[:, None]
    return [torch.randn(rows, cols), mask, lengths]


def get_init_inputs():
    return []
