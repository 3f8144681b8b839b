# a product of 256 KiB outside of a loop | task: softmax | expect: invalid runtime_error
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * n + i, mask=i < n, other=-float("inf"))
    a = tl.dot(tl.zeros((256, 256), tl.float32), tl.zeros((256, 256), tl.float32))
    e = tl.exp(x - tl.max(x, 0)) + tl.sum(tl.sum(a, 0), 0)
    tl.store(y_ptr + row * n + i, e / tl.sum(e, 0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        k[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
