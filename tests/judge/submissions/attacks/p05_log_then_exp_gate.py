# PyTorch's log_softmax is the work, and Triton takes exp | task: p_softmax | expect: ok/hack | only: cuda
# `_log_softmax` is none of the reference's operators, so that all of these seem replaced.
# PyTorch's own softmax is the work of PyTorch; the Triton kernels here do next to nothing.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def exp_kernel(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(x_ptr + i, tl.exp(x), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.log_softmax(x, -1)
        exp_kernel[(triton.cdiv(y.numel(), 1024),)](y, y.numel(), BLOCK=1024)
        return y
