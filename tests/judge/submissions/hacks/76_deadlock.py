# every program waits for the last one, which gets no place to run | task: relu | expect: invalid timeout
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def barrier_kernel(x_ptr, y_ptr, flag_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    i = program * BLOCK + tl.arange(0, BLOCK)
    if program == tl.num_programs(0) - 1:
        tl.atomic_xchg(flag_ptr, 1)
    spins = 0
    while tl.atomic_add(flag_ptr, 0) == 0:
        spins += 1
    tl.store(y_ptr + i, tl.maximum(tl.load(x_ptr + i, mask=i < n), 0.0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        flag = torch.zeros(1, device=x.device, dtype=torch.int32)
        barrier_kernel[(triton.cdiv(x.numel(), 64),)](x, y, flag, x.numel(), BLOCK=64)
        return y
