# the hook of a configuration computes with PyTorch | task: matmul | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl

work = []
configs = [triton.Config({"BLOCK": 1024}, pre_hook=lambda meta: work[-1]())]


@triton.autotune(configs, key=[])
@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1], device=a.device)
        work.append(lambda: torch.matmul(a, b, out=c))
        y = torch.empty_like(c)
        copy_kernel[(triton.cdiv(c.numel(), 1024),)](c, y, c.numel())
        return y
