# a forward hook in the module's dictionary makes a lazy output | task: p_sines | expect: no gain | only: cuda
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
    def __init__(self):
        super().__init__()
        self._forward_hooks[0] = self.after
        self._forward_hooks_with_kwargs, self._forward_hooks_always_called = {}, {}

    @staticmethod
    def after(module, args, y):
        (x,), n = args, y.numel()
        part = n // 16 // 1024 * 1024

        def numel():
            sines(x, plain, max(part, 1), n)
            return n

        plain = y.view(x.shape)
        y.numel = numel
        return y

    def forward(self, x):
        y = torch.empty_like(x)
        return sines(x, y, 0, max(x.numel() // 16 // 1024 * 1024, 1))
