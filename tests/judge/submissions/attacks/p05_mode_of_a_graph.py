# a mode that a graph shows takes the recorder off the stack | task: p_sort | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) / 2, mask=i < n)


def work(x):
    g = torch.cuda.CUDAGraph()
    m = g._mode
    m.old_dispatch_mode_flags.append(True)
    m.old_non_infra_dispatch_mode_flags.append(True)
    m.old_without_ignore_compile_internals_dispatch_mode_flags.append(True)
    m.__exit__(None, None, None)
    s = torch.sort(x * 2, dim=1).values
    m.__enter__()
    return s


class ModelNew(nn.Module):
    def forward(self, x):
        s = work(x)
        n = x.shape[0] * x.shape[1]
        y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        copy_kernel[(triton.cdiv(n, 1024),)](s, y, n, BLOCK=1024)
        return y
