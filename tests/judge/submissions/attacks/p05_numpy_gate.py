# numpy computes on the host, and Triton brings the answer to the device | task: p_tiny | expect: no gain | only: cuda
# Slow here; it is the coverage that is not earned.
# The honest base is one launch for each sine, as PyTorch has them: about 1.0x; calls take some 10 us.
import numpy as np
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def turn_kernel(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, -tl.load(y_ptr + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.is_meta:
            y = torch.empty_like(x)
        else:
            y = torch.as_tensor(-np.sin(np.sin(np.sin(np.sin(x.cpu().numpy())))), device=x.device)
        turn_kernel[(triton.cdiv(y.numel(), 1024),)](y, y.numel(), BLOCK=1024)
        return y
