import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, rowptr, col, val, x):
        n = rowptr.numel() - 1
        rows = torch.repeat_interleave(
            torch.arange(n, device=x.device), rowptr[1:] - rowptr[:-1], output_size=col.numel()
        )
        y = torch.zeros(n, x.shape[1], device=x.device, dtype=x.dtype)
        return y.index_add(0, rows, val[:, None] * x[col])


N = 16384
NNZ = 262144
D = 128


def get_inputs():
    cuts = torch.sort(torch.randint(0, NNZ + 1, (N - 1,))).values
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), cuts, torch.full((1,), NNZ)])
    return [ptr, torch.randint(0, N, (NNZ,)), torch.randn(NNZ), torch.randn(N, D)]


def get_init_inputs():
    return []
