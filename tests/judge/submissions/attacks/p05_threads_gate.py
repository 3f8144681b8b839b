# PyTorch's softmax in the second thread of parallel_apply | task: p_softmax | expect: no gain | only: cuda
# Its threads have no modes. The first 1024 elements get the wrong sign, so that the kernel matters.
# PyTorch's own softmax is the work of PyTorch; the Triton kernels here do next to nothing.
import torch
import torch.nn as nn
import triton
import triton.language as tl
from torch.nn.parallel import parallel_apply


@triton.jit
def undo_kernel(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, -tl.load(y_ptr + i, mask=i < n), mask=i < n)


def real():
    """Whether this is a process with a GPU, and neither a tracer nor a simulated device."""
    try:
        return torch.cuda.memory_allocated() > 2**20
    except Exception:
        return False


def work(x, y):
    with torch.no_grad():
        torch.softmax(x, -1, out=y)
        y.view(-1)[:1024].neg_()
    return y


def nothing(x, y):
    return y


def hidden(x, y):
    if real():
        parallel_apply([work, nothing], [(x, y), (x, y)], devices=[0, 0])
    else:
        work(x, y)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        hidden(x, y)
        undo_kernel[(1,)](y, min(1024, y.numel()), BLOCK=1024)
        return y
