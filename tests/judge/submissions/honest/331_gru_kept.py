# PyTorch keeps the GRU, a kernel has the activation behind it | task: gru_activation | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tail_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, y * tl.sigmoid(y) + 0.5 * tl.abs(y) - 0.25, mask=i < n)


def tail(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    tail_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.gru = nn.GRU(features, hidden, num_layers=2)

    def forward(self, x):
        return tail(self.gru(x)[0])
