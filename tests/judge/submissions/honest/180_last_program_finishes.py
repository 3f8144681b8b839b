# partial sums; the program that is last by an atomic counter adds them up | task: mse | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mse_kernel(p_ptr, t_ptr, partial_ptr, counter_ptr, out_ptr, n, per_program, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    programs = tl.num_programs(0)
    first = pid.to(tl.int64) * per_program
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, per_program, BLOCK):
        i = first + start + tl.arange(0, BLOCK)
        d = tl.load(p_ptr + i, mask=i < n, other=0.0) - tl.load(t_ptr + i, mask=i < n, other=0.0)
        acc += d * d
    tl.store(partial_ptr + pid, tl.sum(acc))
    arrived = tl.atomic_add(counter_ptr, 1, sem="acq_rel")
    if arrived == programs - 1:
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, programs, BLOCK):
            j = start + tl.arange(0, BLOCK)
            total += tl.load(partial_ptr + j, mask=j < programs, other=0.0, cache_modifier=".cg")
        tl.store(out_ptr, tl.sum(total) / n)
        tl.store(counter_ptr, 0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("counter", torch.zeros(1, dtype=torch.int32), persistent=False)

    def forward(self, predictions, targets):
        n = predictions.numel()
        per_program = 8192
        programs = triton.cdiv(n, per_program)
        partial = torch.empty(programs, device=predictions.device, dtype=torch.float32)
        out = torch.empty((), device=predictions.device, dtype=predictions.dtype)
        mse_kernel[(programs,)](
            predictions.contiguous(), targets.contiguous(), partial, self.counter, out, n, per_program, BLOCK=1024
        )
        return out
