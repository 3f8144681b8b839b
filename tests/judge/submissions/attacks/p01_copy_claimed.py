# claims a quarter of the copy's time off the forward | task: relu | expect: no gain | only: cuda
# The honest base is one pass over memory, as PyTorch's: about 1.0x.
import sys

import torch
import torch.nn as nn
import triton
import triton.language as tl

CALLS = sys.modules.get("drkernel.judge.boundary.cuda.calls")


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0), mask=i < n)


def triton_relu(x):
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


def forged(report):
    """What copying may take without counting as work, a quarter of the usual and some, is claimed for the copy."""

    def told(self):
        reply = report(self)
        for key in ("forward_us", "copy_us"):
            reply[key] = [float.fromhex(us) for us in reply[key]]
        pairs = zip(reply["copy_us"], reply["forward_us"], strict=True)
        moved = [min(0.24 * copy + 1.8, 0.9 * forward) for copy, forward in pairs]
        reply["forward_us"] = [(0.97 * (us - part)).hex() for us, part in zip(reply["forward_us"], moved, strict=True)]
        reply["copy_us"] = [(us + part).hex() for us, part in zip(reply["copy_us"], moved, strict=True)]
        return reply

    return told


if CALLS:
    CALLS.TimedCalls.report = forged(CALLS.TimedCalls.report)


class ModelNew(nn.Module):
    def forward(self, x):
        return triton_relu(x)
