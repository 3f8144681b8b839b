# no barrier before a second stage | task: frobenius | expect: invalid runtime_error | only: simulated
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, part, y_ptr, n, PP: tl.constexpr, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    np_ = tl.num_programs(0)
    acc = tl.zeros((BLOCK,), tl.float32)
    per = tl.cdiv(n, np_ * BLOCK) * BLOCK
    for s in range(p * per, p * per + per, BLOCK):
        i = s + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n, other=0.0)
        acc += x * x
    tl.store(part + p, tl.sum(acc, axis=0))
    j = tl.arange(0, PP)
    total = tl.sum(tl.load(part + j, mask=j < np_, other=0.0), axis=0)
    scale = 1 / tl.sqrt(total)
    for s in range(p * per, p * per + per, BLOCK):
        i = s + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n, other=0.0)
        tl.store(y_ptr + i, x * scale, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        part = torch.empty(512, device=x.device, dtype=torch.float32)
        kernel[(32,)](x.contiguous(), part, y, n, PP=32, BLOCK=1024)
        return y
