# a bisection that takes the other side of boundaries that are hit | task: bucketize | expect: incorrect
import math

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def search(values_ptr, edges_ptr, out_ptr, n, edges, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(values_ptr + i, mask=mask, other=0.0)
    low = tl.zeros((BLOCK,), tl.int32)
    high = tl.zeros((BLOCK,), tl.int32) + edges
    for _ in tl.static_range(STEPS):
        middle = (low + high) // 2
        open_ = low < high
        right = open_ & (tl.load(edges_ptr + middle, mask=open_, other=0.0) < v)
        low = tl.where(right, middle + 1, low)
        high = tl.where(open_ & ~right, middle, high)
    tl.store(out_ptr + i, low.to(tl.int64), mask=mask)


class ModelNew(nn.Module):
    def forward(self, values, boundaries):
        values = values.contiguous()
        out = torch.empty(values.shape, device=values.device, dtype=torch.int64)
        edges = boundaries.numel()
        steps = math.ceil(math.log2(edges + 1)) + 1
        search[(triton.cdiv(values.numel(), 512),)](
            values, boundaries, out, values.numel(), edges, STEPS=steps, BLOCK=512
        )
        return out
