# a scan from the end of each row | task: cumsum_reverse | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _sum(x, y):
    return x + y


@triton.jit
def reverse_cumsum(X, Y, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    X += pid * n
    Y += pid * n
    after = 0.0
    blocks = tl.cdiv(n, BLOCK)
    for b in range(blocks):
        offsets = (blocks - 1 - b) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(X + offsets, mask=offsets < n, other=0.0)
        tl.store(Y + offsets, tl.associative_scan(x, 0, _sum, reverse=True) + after, mask=offsets < n)
        after += tl.sum(x, 0)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        reverse_cumsum[(x.shape[0],)](x, y, x.shape[1], BLOCK=min(2048, triton.next_power_of_2(x.shape[1])))
        return y
