# attention through a table of pages | task: paged_attention | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(q_ptr, k_ptr, v_ptr, t_ptr, l_ptr, o_ptr, H, MAXP, scale, D: tl.constexpr, P: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    p_ = tl.arange(0, P)
    n = tl.load(l_ptr + b)
    q = tl.load(q_ptr + (b * H + h) * D + d).to(tl.float32)
    m = tl.full((), -float("inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    acc = tl.zeros((D,), tl.float32)
    for page in range(0, tl.cdiv(n, P)):
        j = tl.load(t_ptr + b * MAXP + page).to(tl.int64)
        pos = page * P + p_
        o = ((j * P + p_)[:, None] * H + h) * D + d[None, :]
        kk = tl.load(k_ptr + o).to(tl.float32)
        s = tl.sum(q[None, :] * kk, 1) * scale
        s = tl.where(pos < n, s, -float("inf"))
        new = tl.maximum(m, tl.max(s, 0))
        e = tl.exp(s - new)
        a = tl.exp(m - new)
        total = total * a + tl.sum(e, 0)
        vv = tl.load(v_ptr + o).to(tl.float32)
        acc = acc * a + tl.sum(e[:, None] * vv, 0)
        m = new
    tl.store(o_ptr + (b * H + h) * D + d, (acc / total).to(tl.float16))


class ModelNew(nn.Module):
    def forward(self, q, kc, vc, table, lens):
        B, H, D = q.shape
        o = torch.empty_like(q)
        k[(B, H)](q, kc, vc, table, lens, o, H, table.shape[1], D**-0.5, D=D, P=kc.shape[1])
        return o
