# TorchScript fuses all the sines into a kernel of its own | task: p_sines | expect: no gain | only: cuda
# The honest base is one launch for each sine, as PyTorch has them: about 1.0x. Whatever is paid above is not earned.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def undo_kernel(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, -tl.load(y_ptr + i, mask=i < n), mask=i < n)


@torch.jit.script
def fused(x: torch.Tensor) -> torch.Tensor:
    return -torch.sin(torch.sin(torch.sin(torch.sin(x))))


class ModelNew(nn.Module):
    def forward(self, x):
        y = fused(x)
        undo_kernel[(triton.cdiv(y.numel(), 1024),)](y, y.numel(), BLOCK=1024)
        return y
