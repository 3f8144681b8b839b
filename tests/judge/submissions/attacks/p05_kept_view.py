# the array of a tensor is asked for once, and used in each call | task: p_sort | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) / 2, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        key = tuple(x.shape)
        if key not in self.kept:
            t = torch.empty(x.shape)
            self.kept[key] = t, t.numpy()
        t, a = self.kept[key]
        t.copy_(x)
        a *= 2
        a.sort(axis=1)
        n = x.shape[0] * x.shape[1]
        y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        copy_kernel[(triton.cdiv(n, 1024),)](t, y, n, BLOCK=1024)
        return y
