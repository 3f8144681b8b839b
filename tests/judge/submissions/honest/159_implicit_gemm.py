# convolution as an implicit product with all that follows in its epilogue | task: conv_bias_relu | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def conv2d_kernel(
    x_ptr, w_ptr, conv_bias_ptr, bias_ptr, y_ptr,
    N, C, H, W, OC, P, Q,
    R: tl.constexpr, S: tl.constexpr, BLOCK_PIXELS: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Output pixels (n, p, q) times output channels; the inner dimension runs over (c, r, s)."""
    pixel = tl.program_id(0) * BLOCK_PIXELS + tl.arange(0, BLOCK_PIXELS)
    o = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    n = pixel // (P * Q)
    p = (pixel // Q) % P
    q = pixel % Q
    K = C * R * S
    acc = tl.zeros((BLOCK_PIXELS, BLOCK_O), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        c = k // (R * S)
        r = (k // S) % R
        s = k % S
        x_where = ((n[:, None] * C + c[None, :]) * H + p[:, None] + r[None, :]) * W + q[:, None] + s[None, :]
        x = tl.load(x_ptr + x_where, mask=(n[:, None] < N) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + o[None, :] * K + k[:, None], mask=(o[None, :] < OC) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    acc += tl.load(conv_bias_ptr + o, mask=o < OC, other=0.0)[None, :]
    acc = tl.maximum(acc, 0.0) + tl.load(bias_ptr + o, mask=o < OC, other=0.0)[None, :]
    y_where = ((n[:, None] * OC + o[None, :]) * P + p[:, None]) * Q + q[:, None]
    tl.store(y_ptr + y_where, acc, mask=(n[:, None] < N) & (o[None, :] < OC))


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x):
        weight = self.conv.weight
        OC, C, R, S = weight.shape
        N, _, H, W = x.shape
        P, Q = H - R + 1, W - S + 1
        y = torch.empty((N, OC, P, Q), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(N * P * Q, 64), triton.cdiv(OC, 32))
        conv2d_kernel[grid](
            x.contiguous(), weight, self.conv.bias, self.bias, y, N, C, H, W, OC, P, Q, R, S,
            BLOCK_PIXELS=64, BLOCK_O=32, BLOCK_K=32,
        )  # fmt: skip
        return y
