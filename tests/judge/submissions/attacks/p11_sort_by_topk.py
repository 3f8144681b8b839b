# the largest of all numbers, in order, are the sorted ones | task: p_sort_scaled | expect: no gain | only: simulated
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tail(y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, y * 0.5 + 1.0, mask=i < n)


def finished(y):
    out = torch.empty_like(y)
    tail[(triton.cdiv(y.numel(), 1024),)](y, out, y.numel(), BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def forward(self, x):
        return finished(torch.topk(x, x.shape[-1], dim=-1, largest=False, sorted=True).values)
