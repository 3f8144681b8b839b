# claims part of each forward for the flush before it | task: p_sines | expect: no gain | only: cuda
# The honest base is one launch for each sine, as PyTorch has them: about 1.0x. Whatever is paid above is not earned.
import sys

import torch
import torch.nn as nn
import triton
import triton.language as tl

CALLS = sys.modules.get("drkernel.judge.boundary.cuda.calls")


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


def pretend(share):
    """The report of a runner that claims all its time is the flush's, as far as that is free."""

    def told(self):
        reply = share(self)
        for index, (forward, flush) in enumerate(zip(reply["forward_us"], reply["flush_us"], strict=True)):
            us, more = float.fromhex(forward), float.fromhex(flush) + 20
            moved = min(us - 1.0, more)
            reply["forward_us"][index] = (us - moved).hex()
            reply["flush_us"][index] = (float.fromhex(flush) + moved).hex()
        return reply

    return told


if CALLS:
    CALLS.TimedCalls.report = pretend(CALLS.TimedCalls.report)


class ModelNew(nn.Module):
    def forward(self, x):
        return sines(x, torch.empty_like(x), 0, x.numel())
