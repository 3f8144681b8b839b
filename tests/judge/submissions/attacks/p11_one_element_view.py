# tensors passed as views of one element, whose traffic does not grow | task: relu | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.maximum(tl.load(x_ptr + i, mask=i < n), 0.0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        for _ in range(5):  # one alone would be too fast to be believed
            relu_kernel[(triton.cdiv(x.numel(), 1024),)](x.view(-1)[:1], y.view(-1)[:1], x.numel(), BLOCK=1024)
        return y
