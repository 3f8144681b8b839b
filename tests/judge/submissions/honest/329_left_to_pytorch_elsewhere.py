# rows that are no multiple of 64 are left to PyTorch | task: relu | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_rows(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.maximum(tl.load(x_ptr + i), 0.0))


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape[-1] % 64:
            return torch.relu(x)
        x = x.contiguous()
        y = torch.empty_like(x)
        relu_rows[(x.numel() // 64,)](x, y, BLOCK=64)
        return y
