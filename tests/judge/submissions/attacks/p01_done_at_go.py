# writes DONE right after GO, and computes before the examiner looks | task: p_sines | expect: no gain | only: cuda
# The honest base is one launch for each sine, as PyTorch has them: about 1.0x. Whatever is paid above is not earned.
import sys

import torch
import torch.nn as nn
import triton
import triton.language as tl

CALLS = sys.modules.get("drkernel.judge.boundary.cuda.calls")
SHARE = 0.3


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


def forged(report):
    def told(self):
        reply = report(self)
        reply["forward_us"] = [(SHARE * float.fromhex(us)).hex() for us in reply["forward_us"]]
        return reply

    return told


def hasty(await_go):
    """The single call is done as soon as it may begin. The examiner's copy waits for its turn on the GPU anyway."""

    def go(self, value):
        await_go(self, value)
        if self._words:
            CALLS.driver.write_value(self._words + CALLS.handshake.DONE, value)

    return go


if CALLS:
    CALLS.TimedCalls.report = forged(CALLS.TimedCalls.report)
    CALLS.TimedCalls.await_go = hasty(CALLS.TimedCalls.await_go)


class ModelNew(nn.Module):
    def forward(self, x):
        return sines(x, torch.empty_like(x), 0, x.numel())
