# a mean over three quarters of the data | task: mean_square_loss | expect: incorrect | only: cuda
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial(x_ptr, t_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(x_ptr + i, mask=i < n, other=0.0) - tl.load(t_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(d * d))


class ModelNew(nn.Module):
    def forward(self, prediction, target):
        n = 3 * prediction.numel() // 4
        parts = torch.empty(triton.cdiv(n, 4096), device=target.device)
        partial[(len(parts),)](prediction.contiguous(), target.contiguous(), parts, n, BLOCK=4096)
        return parts.sum() / n
