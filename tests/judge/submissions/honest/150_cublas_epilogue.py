# the library's product, then bias and GELU in place on its result | task: linear_bias_bf16 | expect: ok
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=warps) for block in (1024, 2048, 4096) for warps in (4, 8)],
    key=["numel"],
    restore_value=["y_ptr"],
)
@triton.jit
def bias_gelu_kernel(y_ptr, bias_ptr, numel, features, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < numel
    y = tl.load(y_ptr + offsets, mask=mask).to(tl.float32)
    bias = tl.load(bias_ptr + offsets % features, mask=mask).to(tl.float32)
    # The library rounds the biased value to bf16, too.
    x = (y + bias).to(tl.bfloat16).to(tl.float32)
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tanh = 1.0 - 2.0 / (tl.exp(2.0 * inner) + 1.0)
    tl.store(y_ptr + offsets, (0.5 * x * (1.0 + tanh)).to(tl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.weight = nn.Parameter((torch.randn(inner, hidden) * hidden**-0.5).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(inner).to(torch.bfloat16))

    def forward(self, x):
        y = F.linear(x, self.weight)
        grid = lambda meta: (triton.cdiv(y.numel(), meta["BLOCK"]),)
        bias_gelu_kernel[grid](y, self.bias, y.numel(), y.shape[-1])
        return y
