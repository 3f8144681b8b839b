# a helper that remembers grids and blocks per shape | task: gather_rows | expect: ok
from dataclasses import dataclass

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _gather_scaled(x, index, scale, out, n_cols, n_picked, n_rows, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(1) * R + tl.arange(0, R)[:, None]
    c = tl.program_id(0) * C + tl.arange(0, C)[None, :]
    live = (r < n_rows) & (c < n_picked)
    where = tl.load(index + r * n_picked + c, mask=live, other=0)
    factor = tl.load(scale + r, mask=r < n_rows, other=0.0)
    tl.store(out + r * n_picked + c, tl.load(x + r * n_cols + where, mask=live, other=0.0) * factor, mask=live)


@dataclass(frozen=True)
class Plan:
    grid: tuple
    rows: int
    columns: int
    warps: int


class Planner:
    """Plans launches; a shape is planned once."""

    def __init__(self):
        self.plans: dict = {}

    def plan(self, rows: int, picked: int) -> Plan:
        key = rows, picked
        if key not in self.plans:
            columns = min(256, triton.next_power_of_2(picked))
            block_rows = 4
            grid = (triton.cdiv(picked, columns), triton.cdiv(rows, block_rows))
            self.plans[key] = Plan(grid, block_rows, columns, 4)
        return self.plans[key]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.planner = Planner()

    def forward(self, x, index, scale):
        (rows, cols), picked = x.shape, index.shape[1]
        out = torch.empty_like(index, dtype=x.dtype)
        plan = self.planner.plan(rows, picked)
        _gather_scaled[plan.grid](
            x, index, scale, out, cols, picked, rows, R=plan.rows, C=plan.columns, num_warps=plan.warps
        )
        return out
