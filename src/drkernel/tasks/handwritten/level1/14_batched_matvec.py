"""matmul: a matrix times a vector for every item of a batch, bound by the reading of the matrices."""

import torch
import torch.nn as nn

BATCH = 64
M = 1536
K = 1280


class Model(nn.Module):
    def forward(self, matrices, vectors):
        return torch.einsum("bmk,bk->bm", matrices, vectors)


def get_inputs():
    return [torch.randn(BATCH, M, K), torch.randn(BATCH, K)]


def get_init_inputs():
    return []
