# a causal convolution of a few taps and its activation, with checks of the arguments | task: conv1d_causal | expect: ok
from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _causal_conv1d_silu(x_ptr, w_ptr, b_ptr, y_ptr, C, L, TAPS: tl.constexpr, BLOCK_L: tl.constexpr):
    pid_l = tl.program_id(0)
    pid_bc = tl.program_id(1)
    c = pid_bc % C
    t = pid_l * BLOCK_L + tl.arange(0, BLOCK_L)
    x_row = x_ptr + pid_bc.to(tl.int64) * L
    acc = tl.full((BLOCK_L,), 0.0, dtype=tl.float32)
    acc += tl.load(b_ptr + c)
    for j in tl.static_range(0, TAPS):
        # Tap j looks TAPS - 1 - j steps back; before the start there are zeros.
        s = t - (TAPS - 1 - j)
        acc += tl.load(w_ptr + c * TAPS + j) * tl.load(x_row + s, mask=(s >= 0) & (s < L), other=0.0)
    y = acc * tl.sigmoid(acc)
    tl.store(y_ptr + pid_bc.to(tl.int64) * L + t, y, mask=t < L)


def causal_conv1d(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """SiLU of the causal depthwise convolution of x (B, C, L) with weight (C, taps)."""
    if x.ndim != 3:
        raise ValueError(f"expected (batch, channels, length), found {tuple(x.shape)}")
    if weight.shape[0] != x.shape[1] or bias.shape != (x.shape[1],):
        raise ValueError("weight and bias need one row per channel")
    if x.dtype != torch.float32:
        raise TypeError(f"only float32 is supported, found {x.dtype}")
    x = x.contiguous()
    B, C, L = x.shape
    y = torch.empty_like(x)
    block = min(1024, triton.next_power_of_2(L))
    _causal_conv1d_silu[(triton.cdiv(L, block), B * C)](
        x, weight, bias, y, C, L, TAPS=weight.shape[1], BLOCK_L=block, num_warps=4
    )
    return y


class ModelNew(nn.Module):
    def __init__(self, channels: int, taps: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, taps))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return causal_conv1d(x, self.weight, self.bias)
