# a linear recurrence with one loop per block of channels | task: linear_recurrence | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def recurrence(a, b, h, length, channels, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = c < channels
    offset = tl.program_id(1) * length * channels + c
    state = tl.zeros((BLOCK,), tl.float32)
    for _ in range(length):
        state = tl.load(a + offset, mask=mask) * state + tl.load(b + offset, mask=mask)
        tl.store(h + offset, state, mask=mask)
        offset += channels


class ModelNew(nn.Module):
    def forward(self, a, b):
        h = torch.empty_like(b, memory_format=torch.contiguous_format)
        batch, length, channels = b.shape
        grid = (triton.cdiv(channels, 64), batch)
        recurrence[grid](a.contiguous(), b.contiguous(), h, length, channels, BLOCK=64, num_warps=2)
        return h
