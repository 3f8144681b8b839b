# bilinear interpolation with clamped neighbours | task: upsample | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def source(index, size):
    """The two neighbours of an output position and the weight of the second one."""
    position = tl.maximum((index.to(tl.float32) + 0.5) * 0.5 - 0.5, 0.0)
    first = position.to(tl.int32)
    second = tl.minimum(first + 1, size - 1)
    return first, second, position - first.to(tl.float32)


@triton.jit
def upsample_kernel(x_ptr, y_ptr, total, height, width, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    plane = x_ptr + (i // (4 * height * width)) * height * width
    y0, y1, wy = source((i // (2 * width)) % (2 * height), height)
    x0, x1, wx = source(i % (2 * width), width)
    a = tl.load(plane + y0 * width + x0, mask=mask)
    b = tl.load(plane + y0 * width + x1, mask=mask)
    c = tl.load(plane + y1 * width + x0, mask=mask)
    d = tl.load(plane + y1 * width + x1, mask=mask)
    upper = a + wx * (b - a)
    lower = c + wx * (d - c)
    tl.store(y_ptr + i, upper + wy * (lower - upper), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        n, c, h, w = x.shape
        y = torch.empty((n, c, 2 * h, 2 * w), device=x.device, dtype=x.dtype)
        upsample_kernel[(triton.cdiv(y.numel(), 1024),)](x.contiguous(), y, y.numel(), h, w, BLOCK=1024)
        return y
