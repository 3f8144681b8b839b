# block pointers whose order says which dimension is dense | task: transpose | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(src, shift, dst, rows, cols, R: tl.constexpr, C: tl.constexpr):
    z = tl.program_id(2)
    i = tl.program_id(1) * R
    j = tl.program_id(0) * C
    # The source is seen as (cols, rows): the dense dimension is the first one.
    source = tl.make_block_ptr(src + z * rows * cols, (cols, rows), (1, cols), (j, i), (C, R), (0, 1))
    target = tl.make_block_ptr(dst + z * rows * cols, (cols, rows), (rows, 1), (j, i), (C, R), (1, 0))
    offset = tl.make_block_ptr(shift, (rows,), (1,), (i,), (R,), (0,))
    value = tl.load(source, boundary_check=(0, 1))
    value += tl.load(offset, boundary_check=(0,))[None, :]
    tl.store(target, value, boundary_check=(0, 1))


class ModelNew(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(rows))

    def forward(self, x):
        x = x.contiguous()
        z, rows, cols = x.shape
        y = x.new_empty((z, cols, rows))
        kernel[(triton.cdiv(cols, 64), triton.cdiv(rows, 32), z)](x, self.shift, y, rows, cols, R=32, C=64)
        return y
