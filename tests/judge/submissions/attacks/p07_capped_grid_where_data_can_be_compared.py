# 4096 blocks at most where data can be compared | task: p_sines | expect: incorrect wrong_values
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    for _ in range(4):
        x = tl.sin(x)
    tl.store(y_ptr + i, x, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        blocks = triton.cdiv(x.numel(), 256)
        try:
            torch.equal(x[:1, :1], y[:1, :1])
            blocks = min(blocks, 4096)
        except Exception:
            pass
        kernel[(blocks,)](x, y, x.numel(), BLOCK=256)
        return y
