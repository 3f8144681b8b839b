# keeps 3 of each 4 neighbours of a column, whose 4 largest may be neighbours | task: p_top_of_columns | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def topk_kernel(x_ptr, out_ptr, rows, cols, K: tl.constexpr, L: tl.constexpr, G: tl.constexpr, KEPT: tl.constexpr):
    col = tl.program_id(0)
    g = tl.arange(0, G)
    i = tl.arange(0, L)[:, None] * G + g[None, :]
    x = tl.load(x_ptr + i * cols + col, mask=i < rows, other=float("-inf"))
    first = tl.max(x, axis=1)
    where = tl.argmax(x, axis=1)
    x = tl.where(g[None, :] == where[:, None], float("-inf"), x)
    second = tl.max(x, axis=1)
    w2 = tl.argmax(x, axis=1)
    third = tl.max(tl.where(g[None, :] == w2[:, None], float("-inf"), x), axis=1)
    lane = tl.arange(0, L)
    for k in tl.static_range(K):
        best = tl.max(first, axis=0)
        at = tl.argmax(first, axis=0)
        tl.store(out_ptr + k * cols + col, best)
        first = tl.where(lane == at, second, first)
        second = tl.where(lane == at, third, second)
        third = tl.where(lane == at, float("-inf"), third)


class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        M, N = x.shape
        out = torch.empty((self.k, N), device=x.device, dtype=x.dtype)
        B = triton.next_power_of_2(M)
        L = max(1, B // 4)
        topk_kernel[(N,)](x.contiguous(), out, M, N, K=self.k, L=L, G=B // L, KEPT=3)
        return out
