# an output whose own detach() does the rest of the work | task: p_sines | expect: no gain | only: cuda
# The honest base is one launch for each sine, as PyTorch has them: about 1.0x. Whatever is paid above is not earned.
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
    """A sixteenth of the work is done in forward, and the rest when somebody asks the output detach."""

    def forward(self, x):
        y, n = torch.empty_like(x), x.numel()
        part = n // 16 // 1024 * 1024
        sines(x, y, 0, max(part, 1))
        plain = y.view(x.shape)

        def asked(*args, **kwargs):
            sines(x, plain, max(part, 1), n)
            return plain.detach(*args, **kwargs)

        y.detach = asked
        return y
