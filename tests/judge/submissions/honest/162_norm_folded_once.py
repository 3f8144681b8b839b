# batch norm is folded into the weights by a kernel on first use | task: conv_norm_relu | expect: ok
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def fold_kernel(w, mean, var, gamma, beta, folded, shift, per_channel, eps, BLOCK: tl.constexpr):
    """folded[o] = w[o] * gamma[o] / sqrt(var[o] + eps), and the shift that belongs to it."""
    o = tl.program_id(0)
    factor = tl.load(gamma + o) * tl.rsqrt(tl.load(var + o) + eps)
    tl.store(shift + o, tl.load(beta + o) - tl.load(mean + o) * factor)
    for start in range(0, per_channel, BLOCK):
        i = start + tl.arange(0, BLOCK)
        value = tl.load(w + o * per_channel + i, mask=i < per_channel)
        tl.store(folded + o * per_channel + i, value * factor, mask=i < per_channel)


@triton.jit
def bias_relu_kernel(y, shift, size, channels, plane, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(y + i, mask=i < size) + tl.load(shift + (i // plane) % channels, mask=i < size)
    tl.store(y + i, tl.maximum(value, 0.0), mask=i < size)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        self._folded = None

    def train(self, mode=True):
        self._folded = None  # statistics and weights may change from here on
        return super().train(mode)

    def _fold(self):
        weight, bn = self.conv.weight, self.bn
        folded, shift = torch.empty_like(weight), torch.empty_like(bn.bias)
        per_channel = weight[0].numel()
        fold_kernel[(weight.shape[0],)](
            weight, bn.running_mean, bn.running_var, bn.weight, bn.bias, folded, shift, per_channel, bn.eps, BLOCK=256
        )
        return folded, shift

    def forward(self, x):
        if self.training:
            return torch.relu(self.bn(self.conv(x)))
        if self._folded is None:
            self._folded = self._fold()
        weight, shift = self._folded
        y = F.conv2d(x, weight, padding=1).contiguous()
        plane = y.shape[2] * y.shape[3]
        bias_relu_kernel[(triton.cdiv(y.numel(), 1024),)](y, shift, y.numel(), y.shape[1], plane, BLOCK=1024)
        return y
