# the largest value is taken away k times | task: top_values | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def topk_kernel(x_ptr, out_ptr, cols, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=float("-inf"))
    for k in tl.static_range(K):
        best = tl.max(x, axis=0)
        where = tl.argmax(x, axis=0)
        tl.store(out_ptr + row * K + k, best)
        x = tl.where(i == where, float("-inf"), x)


class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        out = torch.empty((x.shape[0], self.k), device=x.device, dtype=x.dtype)
        topk_kernel[(x.shape[0],)](x.contiguous(), out, x.shape[1], K=self.k, BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
