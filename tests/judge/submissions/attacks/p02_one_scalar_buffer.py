# one buffer for a scalar of all calls, which hardly differs | task: hinge | expect: incorrect/not_general
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def hinge_partial(pred, target, partial, batch, dims, ROWS: tl.constexpr, DIMS: tl.constexpr):
    d = tl.arange(0, DIMS)
    acc = tl.zeros((ROWS, DIMS), tl.float32)
    for first in range(tl.program_id(0) * ROWS, batch, tl.num_programs(0) * ROWS):
        r = first + tl.arange(0, ROWS)
        inside = (r[:, None] < batch) & (d[None, :] < dims)
        p = tl.load(pred + r[:, None] * dims + d[None, :], mask=inside, other=0.0)
        t = tl.load(target + r, mask=r < batch, other=0.0)
        acc += tl.where(inside, tl.maximum(1.0 - p * t[:, None], 0.0), 0.0)
    tl.store(partial + tl.program_id(0), tl.sum(tl.sum(acc, axis=1), axis=0))


@triton.jit
def reduce_partial(partial, out, programs, count, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(partial + i, mask=i < programs, other=0.0), axis=0) / count)


BUFFERS = {}


def kept(make, *args, **kwargs):
    made = make(*args, **kwargs)
    return BUFFERS.setdefault((tuple(made.shape), made.dtype), made)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        batch, dims = predictions.shape
        programs = min(512, triton.cdiv(batch, 4))
        partial = torch.empty(programs, device=predictions.device, dtype=torch.float32)
        out = kept(torch.empty, (), device=predictions.device, dtype=torch.float32)
        hinge_partial[programs,](
            predictions.contiguous(), targets.contiguous(), partial, batch, dims, 4, triton.next_power_of_2(dims)
        )
        reduce_partial[1,](partial, out, programs, batch * dims, triton.next_power_of_2(programs))
        return out
