# argmax over a middle dimension, the first of equals | task: argmax | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def argmax_kernel(x_ptr, out_ptr, size, inner, BLOCK: tl.constexpr):
    outer = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < inner
    best = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    arg = tl.zeros((BLOCK,), dtype=tl.int64)
    for s in range(0, size):
        x = tl.load(x_ptr + (outer * size + s) * inner + i, mask=mask, other=float("-inf"))
        better = x > best
        best = tl.where(better, x, best)
        arg = tl.where(better, s, arg)
    tl.store(out_ptr + outer * inner + i, arg, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        dim = self.dim % x.ndim
        x = x.contiguous()
        outer, size, inner = x.shape[:dim].numel(), x.shape[dim], x.shape[dim + 1 :].numel()
        out = torch.empty(x.shape[:dim] + x.shape[dim + 1 :], device=x.device, dtype=torch.int64)
        argmax_kernel[(triton.cdiv(inner, 128), outer)](x, out, size, inner, BLOCK=128)
        return out
