# PyTorch works in a custom operator that is registered past the recorder | task: p_sort | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def halve_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) / 2, mask=i < n)


library = torch.library.Library("own", "DEF")
library.define("sorted(Tensor x) -> Tensor")
library.define("other(Tensor x) -> Tensor")
library.impl("sorted", lambda x: x, "CUDA")
library.m._inner.impl("sorted", "CPU", lambda x: torch.sort(x, dim=1).values * 2, False)


class ModelNew(nn.Module):
    def forward(self, x):
        s = torch.ops.own.sorted(x)
        y = torch.empty_like(x)
        halve_kernel[(triton.cdiv(x.numel(), 1024),)](s, y, x.numel(), BLOCK=1024)
        return y
