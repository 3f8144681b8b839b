# a 1x1 convolution as a product on channels_last memory | task: pointwise_conv | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def nhwc_pointwise(x, w, b, y, pixels, C, OC, BP: tl.constexpr, BO: tl.constexpr, BC: tl.constexpr):
    p = (tl.program_id(0) * BP + tl.arange(0, BP)).to(tl.int64)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    acc = tl.zeros((BP, BO), tl.float32)
    for c0 in range(0, C, BC):
        c = c0 + tl.arange(0, BC)
        xs = tl.load(x + p[:, None] * C + c[None, :], mask=(p[:, None] < pixels) & (c[None, :] < C), other=0.0)
        ws = tl.load(w + o[None, :] * C + c[:, None], mask=(o[None, :] < OC) & (c[:, None] < C), other=0.0)
        acc = tl.dot(xs, ws, acc)
    acc += tl.load(b + o, mask=o < OC, other=0.0).to(tl.float32)[None, :]
    tl.store(y + p[:, None] * OC + o[None, :], acc.to(tl.float16), mask=(p[:, None] < pixels) & (o[None, :] < OC))


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv1d = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=True).half()

    def forward(self, x):
        x = x.contiguous(memory_format=torch.channels_last)
        n, c, h, w = x.shape
        weight = self.conv1d.weight.reshape(-1, c)
        o = weight.shape[0]
        y = torch.empty((n, o, h, w), device=x.device, dtype=x.dtype, memory_format=torch.channels_last)
        grid = (triton.cdiv(n * h * w, 128), triton.cdiv(o, 64))
        nhwc_pointwise[grid](x, weight, self.conv1d.bias, y, n * h * w, c, o, BP=128, BO=64, BC=32)
        return y
