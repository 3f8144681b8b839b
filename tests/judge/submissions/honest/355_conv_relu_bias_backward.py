# mask and sums in one pass; torch.nn.grad for the convolution | task: backward_conv_bias_relu | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mask_and_sums(y_ptr, g_ptr, m_ptr, raw_ptr, masked_ptr, N, C, S, BLOCK: tl.constexpr):
    c = tl.program_id(0)
    raw = tl.zeros((BLOCK,), tl.float32)
    masked = tl.zeros((BLOCK,), tl.float32)
    n = tl.program_id(1)
    base = (n * C + c) * S
    for start in range(0, S, BLOCK):
        i = start + tl.arange(0, BLOCK)
        y = tl.load(y_ptr + base + i, mask=i < S, other=0.0)
        g = tl.load(g_ptr + base + i, mask=i < S, other=0.0)
        kept = tl.where(y > 0.0, g, 0.0)
        tl.store(m_ptr + base + i, kept, mask=i < S)
        raw += g
        masked += kept
    tl.store(raw_ptr + n * C + c, tl.sum(raw, 0))
    tl.store(masked_ptr + n * C + c, tl.sum(masked, 0))


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x, grad_output):
        y, g = self.conv(x), grad_output.contiguous()
        N, C = y.shape[:2]
        S = y.shape[2] * y.shape[3]
        masked = torch.empty_like(y)
        sums = torch.empty((2, N, C), device=x.device)
        mask_and_sums[(C, N)](y, g, masked, sums[0], sums[1], N, C, S, BLOCK=1024)
        dx = nn.grad.conv2d_input(x.shape, self.conv.weight, masked)
        dw = nn.grad.conv2d_weight(x, self.conv.weight.shape, masked)
        total = sums.sum(1)
        return dx, total[0].view(C, 1, 1), dw, total[1]
