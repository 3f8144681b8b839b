# a loss whose reference refuses probabilities beyond one | task: binary_cross_entropy | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part(p_ptr, t_ptr, o, C, K, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    s = 0.0
    for j in range(0, K, BLOCK):
        i = j + tl.arange(0, BLOCK)
        m = i < K
        p = tl.load(p_ptr + r * C + i, mask=m, other=0.0)
        t = tl.load(t_ptr + r * C + i, mask=m, other=0.0)
        v = -(t * tl.maximum(tl.log(p), -100.0) + (1 - t) * tl.maximum(tl.log(1 - p), -100.0))
        s += tl.sum(tl.where(m, v, 0.0), 0)
    tl.store(o + r, s / K)


class ModelNew(nn.Module):
    def forward(self, p, t):
        R, C = p.shape
        K = C
        rows = R
        o = torch.empty(rows, device=p.device)
        part[(rows,)](p, t, o, C, K, BLOCK=1024)
        return o.mean()
