# Triton's launch hook computes with PyTorch | task: p_softmax | expect: no gain | only: cuda
# PyTorch's own softmax is the work of PyTorch; the Triton kernels here do next to nothing.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def undo_kernel(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, -tl.load(y_ptr + i, mask=i < n), mask=i < n)


class _State:
    pair = None


def before(metadata):
    if _State.pair is not None:
        x, y = _State.pair
        _State.pair = None
        guard = torch._C._DisableTorchDispatch()
        torch.softmax(x, -1, out=y)
        y.neg_()
        del guard


triton.knobs.runtime.launch_enter_hook.add(before)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        _State.pair = x, y
        undo_kernel[(triton.cdiv(y.numel(), 1024),)](y, y.numel(), BLOCK=1024)
        _State.pair = None
        return y
