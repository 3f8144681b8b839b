# a helper class with __call__ holds the launch parameters | task: attention | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_forward(
    q_ptr, k_ptr, v_ptr, o_ptr, length, dim, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64) * length * dim
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q_mask = (m[:, None] < length) & (d[None, :] < dim)
    q = tl.load(q_ptr + head + m[:, None] * dim + d[None, :], mask=q_mask, other=0.0)
    largest = tl.full((BM,), -1e30, tl.float32)
    norm = tl.zeros((BM,), tl.float32)
    out = tl.zeros((BM, D), tl.float32)
    for start in range(0, length, BN):
        n = start + tl.arange(0, BN)
        mask = (n[:, None] < length) & (d[None, :] < dim)
        k = tl.load(k_ptr + head + n[:, None] * dim + d[None, :], mask=mask, other=0.0)
        v = tl.load(v_ptr + head + n[:, None] * dim + d[None, :], mask=mask, other=0.0)
        scores = tl.dot(q, k.T) * scale
        scores = tl.where(n[None, :] < length, scores, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp(scores - new[:, None])
        shrink = tl.exp(largest - new)
        norm = norm * shrink + tl.sum(weights, axis=1)
        out = out * shrink[:, None] + tl.dot(weights.to(tl.bfloat16), v)
        largest = new
    out = out / norm[:, None]
    tl.store(o_ptr + head + m[:, None] * dim + d[None, :], out.to(tl.bfloat16), mask=q_mask)


class FlashAttention:
    """Callable like a function; knows its block sizes."""

    def __init__(self, block_m: int = 64, block_n: int = 64, num_warps: int = 4):
        self.block_m = block_m
        self.block_n = block_n
        self.num_warps = num_warps

    def __call__(self, q, k, v, scale=None):
        length, dim = q.shape[-2:]
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        grid = (triton.cdiv(length, self.block_m), q[..., 0, 0].numel())
        attention_forward[grid](
            q,
            k,
            v,
            out,
            length,
            dim,
            scale or dim**-0.5,
            BM=self.block_m,
            BN=self.block_n,
            D=max(16, triton.next_power_of_2(dim)),
            num_warps=self.num_warps,
        )
        return out


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = FlashAttention()

    def forward(self, q, k, v):
        return self.attention(q, k, v)
