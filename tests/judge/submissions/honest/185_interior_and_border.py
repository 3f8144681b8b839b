# one kernel for windows that lie inside, another for those at the borders | task: avg_pool1d | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def interior(
    x, y, length, outputs, first, last, SIZE: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr
):
    """Outputs from first to last, whose windows need no mask of their own."""
    row = tl.program_id(0)
    o = first + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = o < last
    acc = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(SIZE):
        acc += tl.load(x + row * length + o * STRIDE - PAD + k, mask=inside, other=0.0)
    tl.store(y + row * outputs + o, acc / SIZE, mask=inside)


@triton.jit
def border(
    x, y, length, outputs, first, last, SIZE: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr
):
    """The outputs before first and from last on; what lies outside counts as zero."""
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    o = tl.where(j < first, j, last + j - first)
    k = tl.arange(0, BLOCK)
    i = o[:, None] * STRIDE - PAD + k[None, :]
    mask = (o[:, None] < outputs) & (k[None, :] < SIZE) & (i >= 0) & (i < length)
    acc = tl.sum(tl.load(x + row * length + i, mask=mask, other=0.0), axis=1)
    tl.store(y + row * outputs + o, acc / SIZE, mask=o < outputs)


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x):
        x = x.contiguous()
        n, c, length = x.shape
        outputs = (length + 2 * self.padding - self.size) // self.stride + 1
        first = min(outputs, triton.cdiv(self.padding, self.stride))
        last = max(first, min(outputs, (length + self.padding - self.size) // self.stride + 1))
        y = torch.empty((n, c, outputs), device=x.device, dtype=x.dtype)
        shape = {"SIZE": self.size, "STRIDE": self.stride, "PAD": self.padding}
        if last > first:
            grid = (n * c, triton.cdiv(last - first, 512))
            interior[grid](x, y, length, outputs, first, last, **shape, BLOCK=512)
        rest = first + outputs - last
        if rest:
            block = triton.next_power_of_2(max(rest, self.size))
            border[(n * c,)](x, y, length, outputs, first, last, **shape, BLOCK=block)
        return y
