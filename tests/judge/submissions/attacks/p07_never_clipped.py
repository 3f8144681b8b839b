# clips a norm that is below the threshold, too | task: clip_norm | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial(x_ptr, p_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(p_ptr + tl.program_id(0), tl.sum(x * x))


@triton.jit
def total(p_ptr, s_ptr, k, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, k, BLOCK):
        i = start + tl.arange(0, BLOCK)
        acc += tl.load(p_ptr + i, mask=i < k, other=0.0)
    tl.store(s_ptr, 1.0 / (tl.sqrt(tl.sum(acc)) + 1e-6))


@triton.jit
def apply(x_ptr, s_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    s = tl.load(s_ptr)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * s, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, g):
        n = g.numel()
        y = torch.empty_like(g)
        k = triton.cdiv(n, 4096)
        p = torch.empty(k, device=g.device)
        s = torch.empty(1, device=g.device)
        partial[(k,)](g, p, n, BLOCK=4096)
        total[(1,)](p, s, k, BLOCK=1024)
        apply[(k,)](g, s, y, n, BLOCK=4096)
        return y
