# elementwise operations in functional style, compilers asked to leave them alone | task: mish_chain | expect: ok
import torch
import triton
import triton.language as tl


@triton.jit
def mish(x):
    # tanh(log(1 + e^x)) = (w^2 - 1) / (w^2 + 1), where w = 1 + e^x; large x pass unchanged
    e = tl.exp(tl.minimum(x, 20.0))
    w2 = (1.0 + e) * (1.0 + e)
    ratio = (e * e + 2.0 * e) / (w2 + 1.0)
    return tl.where(x > 20.0, x, x * ratio)


@triton.autotune([triton.Config({"BLOCK": 2**k}, num_warps=w) for k in (10, 11, 12) for w in (4, 8)], key=["n"])
@triton.jit
def chain(x_ptr, y_ptr, n, subtract, multiply, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, mish((x - subtract) * multiply), mask=i < n)


@torch.compiler.disable
def subtract_multiply_mish(x: torch.Tensor, subtract: float, multiply: float) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    chain[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), subtract, multiply)
    return y


class ModelNew(torch.nn.Module):
    def __init__(self, subtract, multiply):
        super().__init__()
        self.arguments = subtract, multiply

    def forward(self, x):
        return subtract_multiply_mish(x, *self.arguments)
