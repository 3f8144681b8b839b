import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmin(x_ptr, out_ptr, candidates, plane, factor, C: tl.constexpr, BLOCK: tl.constexpr):
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    c = tl.arange(0, C)[:, None]
    place = tl.program_id(1).to(tl.int64) * candidates * plane + c * plane + pixel
    inside = (c < candidates) & (pixel < plane)
    x = factor * tl.load(x_ptr + place, mask=inside)
    x = tl.where(c < candidates, x, float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0)[None, :])
    tl.store(out_ptr + place, e / tl.sum(e, axis=0)[None, :], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, dim=1, temperature=1.0):
        super().__init__()
        self.dim = dim
        self.temperature = temperature

    def forward(self, cost):
        # (before, candidates, behind), whatever the dimension
        cost = cost.contiguous()
        before = cost.shape[: self.dim].numel()
        candidates = cost.shape[self.dim]
        behind = cost.shape[self.dim + 1 :].numel()
        out = torch.empty_like(cost)
        softmin[(triton.cdiv(behind, 32), before)](
            cost, out, candidates, behind, -1 / self.temperature, C=triton.next_power_of_2(candidates), BLOCK=32
        )
        return out
