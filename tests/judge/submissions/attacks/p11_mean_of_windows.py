# a mean over a view whose windows overlap | task: avg_pool1d | expect: no gain | only: simulated
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def padded(x_ptr, out_ptr, n, length, padding, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = i - padding
    x = tl.load(x_ptr + row * length + source, mask=(source >= 0) & (source < length), other=0.0)
    tl.store(out_ptr + row * n + i, x, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.window, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x):
        n = x.shape[2] + 2 * self.padding
        wide = torch.empty((x.shape[0], x.shape[1], n), device=x.device)
        padded[(x.shape[0] * x.shape[1], triton.cdiv(n, 1024))](x, wide, n, x.shape[2], self.padding, BLOCK=1024)
        return wide.unfold(2, self.window, self.stride).mean(-1)
