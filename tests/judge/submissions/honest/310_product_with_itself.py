# the second input is the first one transposed, and is not read | task: product_with_itself | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, M, K, BLOCK: tl.constexpr):
    m, n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(x_ptr + n[None, :] * K + k[:, None], mask=(n[None, :] < M) & (k[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(y_ptr + m[:, None] * M + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < M))


class ModelNew(nn.Module):
    def forward(self, x, transposed):
        M, K = x.shape
        y = torch.empty((M, M), device=x.device, dtype=x.dtype)
        kernel[(triton.cdiv(M, 32), triton.cdiv(M, 32))](x.contiguous(), y, M, K, BLOCK=32)
        return y
