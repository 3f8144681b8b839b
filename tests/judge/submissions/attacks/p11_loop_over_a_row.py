# each number of a row is compared with all, which lie in one block that is loaded once | task: p_sort | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rank_kernel(x_ptr, y_ptr, N, BN: tl.constexpr):
    r = tl.program_id(0)
    n = tl.arange(0, BN)
    x = tl.load(x_ptr + r * N + n, mask=n < N, other=float("inf"))
    place = tl.zeros((BN,), tl.int32)
    for i in range(0, N):
        v = tl.min(tl.where(n == i, x, float("inf")), 0)
        place += tl.where((v < x) | ((v == x) & (i < n)), 1, 0)
    tl.store(y_ptr + r * N + place, x, mask=n < N)


class ModelNew(nn.Module):
    def forward(self, x):
        R, N = x.shape
        y = torch.empty_like(x)
        rank_kernel[(R,)](x, y, N, BN=triton.next_power_of_2(N))
        return y
