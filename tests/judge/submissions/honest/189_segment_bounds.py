# sorted segments: bisection finds where each begins, without atomics | task: segment_sum | expect: ok | only: cuda
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def first_not_below(segment_ptr, rows, wanted):
    """The first position of a sorted vector whose value is at least `wanted`."""
    low = tl.zeros((), tl.int32)
    high = low + rows
    while low < high:
        middle = (low + high) // 2
        if tl.load(segment_ptr + middle) < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@triton.jit
def sum_of_segment(x_ptr, segment_ptr, out_ptr, rows, hidden, R: tl.constexpr, H: tl.constexpr):
    s = tl.program_id(0)
    begin = first_not_below(segment_ptr, rows, s)
    end = first_not_below(segment_ptr, rows, s + 1)
    h = tl.program_id(1) * H + tl.arange(0, H)
    acc = tl.zeros((R, H), tl.float32)
    for start in range(begin, end, R):
        r = start + tl.arange(0, R)
        mask = (r[:, None] < end) & (h[None, :] < hidden)
        acc += tl.load(x_ptr + r[:, None] * hidden + h[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + s * hidden + h, tl.sum(acc, axis=0), mask=h < hidden)


class ModelNew(nn.Module):
    """The task promises that the segments are sorted."""

    def __init__(self, segments):
        super().__init__()
        self.segments = segments

    def forward(self, x, segment):
        rows, hidden = x.shape
        out = torch.empty((self.segments, hidden), device=x.device, dtype=x.dtype)
        grid = (self.segments, triton.cdiv(hidden, 64))
        sum_of_segment[grid](x.contiguous(), segment.contiguous(), out, rows, hidden, R=16, H=64)
        return out
