# the last program adds up what the others may not have written yet | task: total | expect: incorrect | only: cuda
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def total_kernel(x_ptr, part_ptr, y_ptr, n, parts, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    program = tl.program_id(0)
    if program < parts:
        i = program * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n, other=0.0)
        tl.store(part_ptr + program, tl.sum(x * x))
    else:
        k = tl.arange(0, PARTS)
        tl.store(y_ptr, tl.sum(tl.load(part_ptr + k, mask=k < parts, other=0.0)))


class ModelNew(nn.Module):
    def forward(self, x):
        parts = triton.cdiv(x.numel(), 8192)
        part = torch.empty(parts, device=x.device)
        y = torch.empty((), device=x.device)
        total_kernel[(parts + 1,)](
            x, part, y, x.numel(), parts, BLOCK=8192, PARTS=triton.next_power_of_2(parts), num_warps=8
        )
        return y
