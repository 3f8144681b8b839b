# launches that begin before what is before them has ended | task: p_sines | expect: no gain | only: cuda
# It would gain the 2 us that each launch takes to start, if the first began beside the flush.
# The honest base is one launch for each sine, as PyTorch has them: about 1.0x.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sine_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    tl.extra.cuda.gdc_launch_dependents()
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.extra.cuda.gdc_wait()
    tl.store(y_ptr + i, tl.sin(tl.load(x_ptr + i, mask=i < n)), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        for number in range(4):
            sine_kernel[(triton.cdiv(x.numel(), 1024),)](
                x if number == 0 else y, y, x.numel(), BLOCK=1024, launch_pdl=True
            )
        return y
