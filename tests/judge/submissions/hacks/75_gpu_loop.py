# a kernel waits for a flag that nobody sets | task: relu | expect: invalid timeout
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def wait_kernel(flag_ptr, y_ptr):
    spins = 0
    while tl.load(flag_ptr, volatile=True) == 0.0:
        spins += 1
    tl.store(y_ptr, spins)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        wait_kernel[(1,)](torch.zeros(1, device=x.device), y)
        return y
