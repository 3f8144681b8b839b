# two output buffers in turn: the last output but one is overwritten | task: p_tiny | expect: no gain | only: cuda
# The honest base is one launch for each sine, as PyTorch has them: about 1.0x; calls take some 10 us.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["start"])
def sine_kernel(x_ptr, y_ptr, start, n, BLOCK: tl.constexpr):
    i = start + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.sin(tl.load(x_ptr + i, mask=i < n)), mask=i < n)


def sines(x, y, start, stop):
    """Elements start to stop of the answer, into y."""
    grid = (triton.cdiv(max(stop - start, 1), 1024),)
    for number in range(4):
        sine_kernel[grid](x if number == 0 else y, y, start, stop, BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.outputs = {}

    def forward(self, x):
        pair = self.outputs.setdefault(tuple(x.shape), [torch.empty_like(x), torch.empty_like(x)])
        pair.reverse()
        return sines(x, pair[0], 0, x.numel())
