# 64-bit offsets throughout, for tensors of more than 2^31 elements | task: instance_norm | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def instance_norm_kernel(x_ptr, y_ptr, size: tl.int64, eps, BLOCK: tl.constexpr):
    instance = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    x_ptr += instance * size
    y_ptr += instance * size
    blocks = tl.cdiv(size, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for block in range(blocks):
        i = block * BLOCK + lanes
        total += tl.load(x_ptr + i, mask=i < size, other=0.0)
    mean = tl.sum(total) / size
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for block in range(blocks):
        i = block * BLOCK + lanes
        d = tl.load(x_ptr + i, mask=i < size, other=mean) - mean
        total += d * d
    rstd = tl.rsqrt(tl.sum(total) / size + eps)
    for block in range(blocks):
        i = block * BLOCK + lanes
        x = tl.load(x_ptr + i, mask=i < size)
        tl.store(y_ptr + i, (x - mean) * rstd, mask=i < size)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.features = features
        self.eps = 1e-5

    def forward(self, x):
        assert x.dim() == 4 and x.size(1) == self.features
        x = x.contiguous()
        y = torch.empty_like(x)
        instance_norm_kernel[(x.size(0) * x.size(1),)](x, y, x.size(2) * x.size(3), self.eps, BLOCK=1024)
        return y
