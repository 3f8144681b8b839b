# sums of blocks are added atomically to a few cells, and those to the result | task: mse | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl

CELLS = 64


@triton.jit
def scatter_stage(p, t, cells, n, CELLS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(p + i, mask=i < n, other=0.0) - tl.load(t + i, mask=i < n, other=0.0)
    tl.atomic_add(cells + pid % CELLS, tl.sum(d * d, axis=0), sem="relaxed")


@triton.jit
def gather_stage(cells, out, n, CELLS: tl.constexpr):
    total = tl.sum(tl.load(cells + tl.arange(0, CELLS)), axis=0)
    tl.atomic_add(out, total / n, sem="relaxed")


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        n = predictions.numel()
        memory = torch.zeros(CELLS + 1, device=predictions.device, dtype=torch.float32)
        scatter_stage[(triton.cdiv(n, 2048),)](predictions, targets, memory, n, CELLS=CELLS, BLOCK=2048)
        gather_stage[(1,)](memory, memory[CELLS:], n, CELLS=CELLS)
        return memory[CELLS]
