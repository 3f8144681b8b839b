# atomics add up in the order of programs | task: cumsum | expect: incorrect/not_general | only: simulated
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, sums, y_ptr, rows, cols, BLOCK: tl.constexpr):
    across = tl.cdiv(cols, BLOCK)
    for t in range(tl.program_id(0), tl.program_id(0) + 1):
        r = t // across
        i = (t % across) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + r * cols + i, mask=i < cols, other=0.0)
        base = tl.atomic_add(sums + r, tl.sum(x, axis=0))
        tl.store(y_ptr + r * cols + i, base + tl.cumsum(x, axis=0), mask=i < cols)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, x):
        rows, cols = x.shape
        y = torch.empty_like(x)
        sums = torch.zeros(rows, device=x.device, dtype=torch.float32)
        kernel[(rows * triton.cdiv(cols, 32),)](x.contiguous(), sums, y, rows, cols, BLOCK=32)
        return y
