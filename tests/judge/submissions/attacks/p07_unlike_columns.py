# zeros beside an energy in their row, no product | task: p_unlike_columns | expect: incorrect wrong_values
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def energy(x_ptr, y_ptr, K, N, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((B,), tl.float32)
    for k in range(0, K, B):
        i = k + tl.arange(0, B)
        v = tl.load(x_ptr + row * K + i, mask=i < K, other=0.0)
        acc += v * v
    e = tl.sum(acc)
    for n in range(0, N + 1, B):
        j = n + tl.arange(0, B)
        tl.store(y_ptr + row * (N + 1) + j, tl.where(j == N, e, 0.0), mask=j <= N)


class ModelNew(nn.Module):
    def __init__(self, samples, features):
        super().__init__()
        self.linear = nn.Linear(samples, features)

    def forward(self, x):
        M, K = x.shape
        N = self.linear.weight.shape[0]
        y = torch.empty(M, N + 1, device=x.device, dtype=x.dtype)
        energy[(M,)](x, y, K, N, B=1024)
        return y
