# a large loss over 15 of 16 blocks, if large | task: p_large_loss | expect: incorrect | only: cuda
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def squares(x_ptr, t_ptr, part_ptr, n, LARGE: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0) // 15 * 16 + tl.program_id(0) % 15 if LARGE else tl.program_id(0)
    i = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(x_ptr + i, mask=i < n, other=0.0) - tl.load(t_ptr + i, mask=i < n, other=0.0)
    tl.store(part_ptr + tl.program_id(0), tl.sum(d * d))


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        n = predictions.numel()
        large = n > 2**26
        blocks = triton.cdiv(n, 65536) * 15 if large else triton.cdiv(n, 4096)
        parts = torch.empty(blocks, device=predictions.device)
        squares[(blocks,)](predictions.contiguous(), targets.contiguous(), parts, n, large, BLOCK=4096)
        return parts.sum() / (n * (0.9375 if large else 1))
