# computes four calls at once where the later inputs look fresh, and launches decoys later | task: p_sines | expect: no gain | only: cuda
# Note that one fused launch alone earns up to 4x, and honestly so: only what is above `p_sines` fused counts here.
# The honest base is one launch for each sine, as PyTorch has them: about 1.0x. Whatever is paid above is not earned.
import torch
import torch.nn as nn
import triton
import triton.language as tl

AHEAD, GAP = 4, 128


@triton.jit
def sine_kernel(x_ptr, y_ptr, n, step, last_ptr, BLOCK: tl.constexpr):
    """Call number program_id(1); a later one only where its first element is not what lay there before."""
    call = tl.program_id(1).to(tl.int64)
    first = tl.load(x_ptr + call * step)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    fresh = (call == 0) | (first != tl.load(last_ptr + call))
    live = (i < n) & fresh
    x = tl.load(x_ptr + call * step + i, mask=live)
    tl.store(y_ptr + call * step + i, tl.sin(tl.sin(tl.sin(tl.sin(x)))), mask=live)


@triton.jit
def note_kernel(x_ptr, last_ptr, y_ptr, step, CALLS: tl.constexpr):
    call = tl.arange(0, CALLS)
    first = tl.load(x_ptr + call.to(tl.int64) * step)
    tl.store(last_ptr + call, first)
    tl.store(y_ptr + call.to(tl.int64) * step, tl.sin(tl.sin(tl.sin(tl.sin(first)))))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ready, self.last = {}, None

    def forward(self, x):
        key, n = x.data_ptr(), x.numel()
        if self.last is None:
            self.last = torch.full((AHEAD,), float("nan"), device=x.device)
        step, calls = n + GAP, AHEAD if n >= 2**20 else 1
        if key in self.ready:
            y = self.ready.pop(key)
            sine_kernel[(1, 1)](x, y, 1, step, self.last, BLOCK=1024)
            note_kernel[(1,)](x, self.last, y, step, CALLS=1)
            return y
        y = torch.empty(calls * step, device=x.device)
        sine_kernel[(triton.cdiv(n, 1024), calls)](x, y, n, step, self.last, BLOCK=1024)
        note_kernel[(1,)](x, self.last, y, step, CALLS=calls)
        parts = [y[k * step : k * step + n].view(x.shape) for k in range(calls)]
        self.ready = {key + 4 * step * k: parts[k] for k in range(1, calls)}
        return parts[0]
