import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.e = nn.EmbeddingBag(rows, width, mode="mean")

    def forward(self, idx, off):
        return self.e(idx, off)


V = 100000
D = 128
B = 4096
L = 32


def get_inputs():
    return [
        torch.randint(0, V, (B * L,)),
        torch.cat([torch.zeros(1, dtype=torch.int64), torch.sort(torch.randint(0, B * L, (B - 1,))).values]),
    ]


def get_init_inputs():
    return [V, D]
