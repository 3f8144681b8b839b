# a constexpr function decides at compile time how a row is divided | task: smooth_l1 | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.constexpr_function
def steps(width, block):
    """How often a loop of fixed length runs."""
    return (width + block - 1) // block


@triton.jit
def huber(d, BETA: tl.constexpr):
    a = tl.abs(d)
    return tl.where(a < BETA, 0.5 * d * d / BETA, a - 0.5 * BETA)


@triton.jit
def smooth_l1_rows(p_ptr, t_ptr, out_ptr, WIDTH: tl.constexpr, BETA: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for step in tl.static_range(steps(WIDTH, BLOCK)):
        i = step * BLOCK + tl.arange(0, BLOCK)
        p = tl.load(p_ptr + row * WIDTH + i, mask=i < WIDTH, other=0.0)
        t = tl.load(t_ptr + row * WIDTH + i, mask=i < WIDTH, other=0.0)
        acc += huber(p - t, BETA)
    tl.store(out_ptr + row, tl.sum(acc, axis=0) / WIDTH)


class ModelNew(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, predictions, targets):
        rows, width = predictions.shape
        out = torch.empty(rows, device=predictions.device, dtype=predictions.dtype)
        smooth_l1_rows[(rows,)](
            predictions.contiguous(), targets.contiguous(), out, WIDTH=width, BETA=self.beta, BLOCK=1024
        )
        return out
