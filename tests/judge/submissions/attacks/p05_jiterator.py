# PyTorch's jiterator makes one kernel of all the sines | task: p_sines | expect: no gain | only: cuda
# The honest base is one launch for each sine, as PyTorch has them: about 1.0x. Whatever is paid above is not earned.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def undo_kernel(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, -tl.load(y_ptr + i, mask=i < n), mask=i < n)


CODE = "template <typename T> T sines(T x) { return -sin(sin(sin(sin(x)))); }"
made = []


def hidden(x):
    if not torch.cuda.is_available() or x.is_meta or not x.is_cuda:
        return -torch.sin(torch.sin(torch.sin(torch.sin(x))))
    if not made:
        made.append(torch.cuda.jiterator._create_jit_fn(CODE))
    return made[0](x)


class ModelNew(nn.Module):
    def forward(self, x):
        y = hidden(x)
        undo_kernel[(triton.cdiv(y.numel(), 1024),)](y, y.numel(), BLOCK=1024)
        return y
