# dropout whose mask comes from a seed and is never stored; none in eval mode | task: dropout_add | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_dropout_add(
    x_ptr, bias_ptr, residual_ptr, y_ptr, n, hidden, p, seed, TRAINING: tl.constexpr, BLOCK: tl.constexpr
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask) + tl.load(bias_ptr + i % hidden, mask=mask)
    if TRAINING:
        x = tl.where(tl.rand(seed, i) > p, x / (1.0 - p), 0.0)
    tl.store(y_ptr + i, x + tl.load(residual_ptr + i, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, hidden, p):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(hidden))
        self.p = p

    def forward(self, x, residual):
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        seed = int(torch.randint(2**31 - 1, ()).item()) if self.training else 0
        bias_dropout_add[(triton.cdiv(x.numel(), 1024),)](
            x.contiguous(), self.bias, residual.contiguous(), y, x.numel(), x.shape[-1], self.p, seed,
            TRAINING=self.training, BLOCK=1024,
        )  # fmt: skip
        return y
