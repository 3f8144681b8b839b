# the maximum of x and abs(a) x, right for slopes from 0 to 1 | task: prelu_chain | expect: incorrect wrong_values
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, a_ptr, y_ptr, plane, channels, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    a = tl.load(a_ptr + (i // plane) % channels, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, tl.abs(a) * x) * 0.5, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.act = nn.PReLU(channels)

    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](
            x, self.act.weight, y, x.shape[2] * x.shape[3], x.shape[1], x.numel(), BLOCK=1024
        )
        return y
