# a fixed grid, of which the last program adds up what the others have | task: mean_square | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, p_ptr, c_ptr, y_ptr, n, P, BLOCK: tl.constexpr, PB: tl.constexpr):
    pid = tl.program_id(0)
    acc = tl.zeros((BLOCK,), tl.float32)
    for s in range(pid * BLOCK, n, P * BLOCK):
        i = s + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n, other=0.0)
        acc += x * x
    tl.store(p_ptr + pid, tl.sum(acc))
    old = tl.atomic_add(c_ptr, 1)
    if old == P - 1:
        j = tl.arange(0, PB)
        t = tl.load(p_ptr + j, mask=j < P, other=0.0)
        tl.store(y_ptr, tl.sum(t) / n)


class ModelNew(nn.Module):
    def forward(self, x):
        n = x.numel()
        P = 528
        p = torch.empty(P, device=x.device)
        c = torch.zeros(1, dtype=torch.int32, device=x.device)
        y = torch.empty((), device=x.device)
        k[(P,)](x, p, c, y, n, P, BLOCK=2048, PB=1024)
        return y
