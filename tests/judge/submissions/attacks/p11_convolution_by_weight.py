# slow_conv_dilated2d for a convolution to one channel | task: p_conv_to_one | expect: no gain | only: simulated
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tail(y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.maximum(y, 0.0) * 0.5, mask=i < n)


def finished(y):
    out = torch.empty_like(y)
    tail[(triton.cdiv(y.numel(), 1024),)](y, out, y.numel(), BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def __init__(self, C, K):
        super().__init__()
        self.conv = nn.Conv2d(C, K, 3, padding=1)

    def forward(self, x):
        one = [1, 1]
        weight, bias = self.conv.weight, self.conv.bias
        return finished(torch.ops.aten.slow_conv_dilated2d(x, weight, [3, 3], bias, one, one, one))
