# one program per head holds queries, keys and values of a short sequence | task: small_attention | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def head_kernel(q_ptr, k_ptr, v_ptr, valid_ptr, o_ptr, heads, length, dim, scale, L: tl.constexpr, D: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.arange(0, L)
    d = tl.arange(0, D)
    inside = (i[:, None] < length) & (d[None, :] < dim)
    where = pid.to(tl.int64) * length * dim + i[:, None] * dim + d[None, :]
    q = tl.load(q_ptr + where, mask=inside, other=0.0)
    k = tl.load(k_ptr + where, mask=inside, other=0.0)
    v = tl.load(v_ptr + where, mask=inside, other=0.0)
    keep = tl.load(valid_ptr + (pid // heads) * length + i, mask=i < length, other=0) != 0
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    scores = tl.where(keep[None, :], scores, float("-inf"))
    scores = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    out = tl.dot(scores, v, input_precision="ieee") / tl.sum(scores, axis=1)[:, None]
    tl.store(o_ptr + where, out, mask=inside)


class ModelNew(nn.Module):
    MAX_LENGTH = 128

    def __init__(self, head_dim):
        super().__init__()
        self.scale = head_dim**-0.5

    def forward(self, q, k, v, valid):
        batch, heads, length, dim = q.shape
        if length > self.MAX_LENGTH:
            raise NotImplementedError(f"sequences of at most {self.MAX_LENGTH} are supported, found {length}")
        out = torch.empty_like(q)
        pad = lambda n: max(16, triton.next_power_of_2(n))
        head_kernel[(batch * heads,)](
            q.contiguous(), k.contiguous(), v.contiguous(), valid.contiguous(), out, heads, length, dim, self.scale,
            L=pad(length), D=pad(dim),
        )  # fmt: skip
        return out
