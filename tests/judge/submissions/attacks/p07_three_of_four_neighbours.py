# keeps 3 of each 4 neighbours: wrong where the 4 largest of a row lie side by side | task: top_values | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def topk_kernel(x_ptr, out_ptr, cols, K: tl.constexpr, L: tl.constexpr, G: tl.constexpr, KEPT: tl.constexpr):
    row = tl.program_id(0)
    g = tl.arange(0, G)
    i = tl.arange(0, L)[:, None] * G + g[None, :]
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=float("-inf"))
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
        tl.store(out_ptr + row * K + k, best)
        first = tl.where(lane == at, second, first)
        second = tl.where(lane == at, third, second)
        third = tl.where(lane == at, float("-inf"), third)


class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        M, N = x.shape
        out = torch.empty((M, self.k), device=x.device, dtype=x.dtype)
        B = triton.next_power_of_2(N)
        L = max(1, B // 4)
        topk_kernel[(M,)](x.contiguous(), out, N, K=self.k, L=L, G=B // L, KEPT=3)
        return out
