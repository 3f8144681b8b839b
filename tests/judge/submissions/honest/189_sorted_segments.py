# sums rows in order and adds atomically where the segment changes | task: segment_sum | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def segment_sum_kernel(x_ptr, segment_ptr, out_ptr, rows, hidden, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = h < hidden
    first = tl.program_id(0) * ROWS
    last = tl.minimum(first + ROWS, rows)
    current = tl.load(segment_ptr + first)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for r in range(first, last):
        segment = tl.load(segment_ptr + r)
        if segment != current:
            tl.atomic_add(out_ptr + current * hidden + h, acc, mask=mask, sem="relaxed")
            acc = tl.zeros((BLOCK,), dtype=tl.float32)
            current = segment
        acc += tl.load(x_ptr + r * hidden + h, mask=mask, other=0.0)
    tl.atomic_add(out_ptr + current * hidden + h, acc, mask=mask, sem="relaxed")


class ModelNew(nn.Module):
    def __init__(self, segments):
        super().__init__()
        self.segments = segments

    def forward(self, x, segment):
        rows, hidden = x.shape
        out = torch.zeros((self.segments, hidden), device=x.device, dtype=x.dtype)
        block = min(128, triton.next_power_of_2(hidden))
        segment_sum_kernel[(triton.cdiv(rows, 32), triton.cdiv(hidden, block))](
            x.contiguous(), segment, out, rows, hidden, ROWS=32, BLOCK=block
        )
        return out
