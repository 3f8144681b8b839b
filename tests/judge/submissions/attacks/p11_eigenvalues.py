# eigenvalues of any matrices, which have another name | task: p_eigenvalues | expect: no gain | only: simulated
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0) * factor
    tl.store(y_ptr + i, 2 * tl.sigmoid(2 * x) - 1, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        z = torch.linalg.eigvals(x + x.transpose(1, 2)).real.sort(-1).values
        result = torch.empty_like(z)
        kernel[(triton.cdiv(z.numel(), 1024),)](z, result, 1 / 16, z.numel(), BLOCK=1024)
        return result
