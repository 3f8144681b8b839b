# adds into a buffer that was zero at the first call only | task: total | expect: incorrect
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def total_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.atomic_add(y_ptr, tl.sum(x * x))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.total = None

    def forward(self, x):
        if self.total is None:
            self.total = torch.zeros((), device=x.device)
        total_kernel[(triton.cdiv(x.numel(), 1024),)](x, self.total, x.numel(), BLOCK=1024)
        return self.total.clone()
