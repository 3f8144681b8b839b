# each number is compared with all of its row | task: p_ranks | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def ranks(x_ptr, y_ptr, N, B: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * B + tl.arange(0, B)
    x = tl.load(x_ptr + row * N + i, mask=i < N, other=0.0)
    count = tl.zeros((B,), tl.int32)
    for d in range(0, N, C):
        k = d + tl.arange(0, C)
        v = tl.load(x_ptr + row * N + k, mask=k < N, other=float("inf"))
        less = (v[None, :] < x[:, None]) | ((v[None, :] == x[:, None]) & (k[None, :] < i[:, None]))
        count += tl.sum(less.to(tl.int32), 1)
    tl.store(y_ptr + row * N + i, count.to(tl.int64), mask=i < N)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        y = torch.empty(M, N, device=x.device, dtype=torch.int64)
        ranks[(M, triton.cdiv(N, 64))](x, y, N, B=64, C=64)
        return y
