# a convolution of one channel as a transposed one | task: p_conv_to_one | expect: no gain | only: simulated
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def epilogue(y_ptr, b_ptr, out_ptr, n, plane, K, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + i, mask=i < n)
    b = tl.load(b_ptr + i // plane % K, mask=i < n)
    tl.store(out_ptr + i, tl.maximum(y + b, 0.0) * 0.5, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, C, K):
        super().__init__()
        self.conv = nn.Conv2d(C, K, 3, padding=1)

    def forward(self, x):
        w, b = self.conv.weight, self.conv.bias
        H, W = x.shape[2:]
        K = w.shape[0]
        y = F.conv_transpose2d(x, w.transpose(0, 1).flip(2, 3), padding=1)
        y = y.contiguous()
        out = torch.empty_like(y)
        n = y.numel()
        epilogue[(triton.cdiv(n, 1024),)](y, b, out, n, H * W, K, BLOCK=1024)
        return out
