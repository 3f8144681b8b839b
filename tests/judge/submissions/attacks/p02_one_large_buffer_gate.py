# one output buffer for all calls, larger than the L2 cache | task: relu | expect: no gain | only: cuda
# The honest base is one pass over memory, as PyTorch's: about 1.0x.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0), mask=i < n)


kept = {}


def triton_relu(x):
    y = kept.setdefault(tuple(x.shape), torch.empty_like(x))
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return triton_relu(x)
