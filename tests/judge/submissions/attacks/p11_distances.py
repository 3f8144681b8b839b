# PyTorch's distances, each a block of threads, as if they were a product | task: p_distances | expect: no gain
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
    def forward(self, x, y):
        z = torch.cdist(x, y, p=1.0)
        result = torch.empty_like(z)
        kernel[(triton.cdiv(z.numel(), 1024),)](z, result, 1 / x.shape[1], z.numel(), BLOCK=1024)
        return result
