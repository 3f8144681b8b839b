# a sum without atomics, one by one | task: total | expect: invalid runtime_error | only: simulated
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out, n, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    acc = tl.zeros((BLOCK,), tl.float32)
    for s in range(p * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = s + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n, other=0.0)
        acc += x * x
    t = tl.sum(acc, axis=0)
    for _ in range(p, 2 * p):
        t += 0.0
    tl.store(out, tl.load(out) + t)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros((), device=x.device, dtype=x.dtype)
        kernel[(132,)](x.contiguous(), out, x.numel(), BLOCK=4096)
        return out
