# beside -inf where a mask is, only the last rows are computed | task: masked_scores | expect: incorrect wrong_values
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scores_kernel(q_ptr, k_ptr, y_ptr, L, D, scale, BLOCK: tl.constexpr, BD: tl.constexpr):
    batch = tl.program_id(2).to(tl.int64)
    m = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    if tl.program_id(1) * BLOCK + BLOCK >= L:
        for start in range(0, D, BD):
            d = start + tl.arange(0, BD)
            q = tl.load(
                q_ptr + (batch * L + m[:, None]) * D + d[None, :], mask=(m[:, None] < L) & (d[None, :] < D), other=0.0
            )
            k = tl.load(
                k_ptr + (batch * L + n[None, :]) * D + d[:, None], mask=(n[None, :] < L) & (d[:, None] < D), other=0.0
            )
            acc = tl.dot(q, k, acc, input_precision="ieee")
    scores = tl.where(n[None, :] > m[:, None], float("-inf"), acc * scale)
    tl.store(y_ptr + (batch * L + m[:, None]) * L + n[None, :], scores, mask=(m[:, None] < L) & (n[None, :] < L))


class ModelNew(nn.Module):
    def forward(self, q, k):
        B, L, D = q.shape
        y = torch.empty((B, L, L), device=q.device, dtype=q.dtype)
        blocks = triton.cdiv(L, 32)
        scores_kernel[(blocks, blocks, B)](q.contiguous(), k.contiguous(), y, L, D, D**-0.5, BLOCK=32, BD=32)
        return y
