# a buffer carries its block size as an attribute | task: relu | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        y.block, y.title = 1024, "output"
        for name in ("rows", "cols"):
            setattr(y, name, x.shape[0] if name == "rows" else x.shape[-1])
        relu_kernel[(triton.cdiv(x.numel(), y.block),)](x, y, x.numel(), BLOCK=y.block)
        return y
