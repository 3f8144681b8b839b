# the sum and its norm in one pass, two outputs | task: residual_norm | expect: ok

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_layer_norm(x_ptr, r_ptr, w_ptr, b_ptr, norm_ptr, sum_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row_start = tl.program_id(0) * n_cols
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row_start + cols, mask=mask, other=0).to(tl.float32)
    r = tl.load(r_ptr + row_start + cols, mask=mask, other=0).to(tl.float32)
    rounded = (x + r).to(tl.bfloat16)
    tl.store(sum_ptr + row_start + cols, rounded, mask=mask)
    total = rounded.to(tl.float32)
    mean = tl.sum(total, axis=0) / n_cols
    diff = tl.where(mask, total - mean, 0.0)
    var = tl.sum(diff * diff, axis=0) / n_cols
    w = tl.load(w_ptr + cols, mask=mask, other=0).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask, other=0).to(tl.float32)
    tl.store(norm_ptr + row_start + cols, (diff * tl.rsqrt(var + eps) * w + b).to(tl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.hidden = hidden
        self.weight = nn.Parameter(torch.rand(hidden).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.rand(hidden).to(torch.bfloat16))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = x.contiguous(), residual.contiguous()
        norm, total = torch.empty_like(x), torch.empty_like(x)
        add_layer_norm[(x.shape[0],)](
            x, residual, self.weight, self.bias, norm, total, self.hidden, 1e-5,
            BLOCK=triton.next_power_of_2(self.hidden), num_warps=8,
        )  # fmt: skip
        return norm, total
