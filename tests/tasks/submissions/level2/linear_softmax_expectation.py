import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def expectation(x_ptr, support_ptr, out_ptr, atoms, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < atoms
    x = factor * tl.load(x_ptr + row.to(tl.int64) * atoms + i, mask=inside, other=0.0)
    x = tl.where(inside, x, float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    support = tl.load(support_ptr + i, mask=inside, other=0.0)
    tl.store(out_ptr + row, tl.sum(e * support, axis=0) / tl.sum(e, axis=0))


class ModelNew(nn.Module):
    def __init__(self, in_features, atoms, temperature):
        super().__init__()
        self.fc = nn.Linear(in_features, atoms)
        self.temperature = temperature

    def forward(self, features, support):
        x = self.fc(features)
        rows, atoms = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        expectation[(rows,)](
            x, support.contiguous(), out, atoms, 1 / self.temperature,
            BLOCK=triton.next_power_of_2(atoms), num_warps=8,
        )  # fmt: skip
        return out
