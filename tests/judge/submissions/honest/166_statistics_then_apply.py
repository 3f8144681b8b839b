# statistics in a workspace, then a second kernel that applies them | task: group_norm | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def group_statistics(x_ptr, mean_ptr, rstd_ptr, size, eps, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    base = x_ptr + group.to(tl.int64) * size
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(base + i, mask=i < size, other=0.0)
    mean = tl.sum(total, axis=0) / size
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        i = start + tl.arange(0, BLOCK)
        centred = tl.where(i < size, tl.load(base + i, mask=i < size, other=0.0) - mean, 0.0)
        squares += centred * centred
    tl.store(mean_ptr + group, mean)
    tl.store(rstd_ptr + group, tl.rsqrt(tl.sum(squares, axis=0) / size + eps))


@triton.jit
def group_apply(x_ptr, mean_ptr, rstd_ptr, w_ptr, b_ptr, y_ptr, channels, plane, per_group, BLOCK: tl.constexpr):
    nc = tl.program_id(0)
    group = nc // per_group
    w = tl.load(w_ptr + nc % channels) * tl.load(rstd_ptr + group)
    shift = tl.load(b_ptr + nc % channels) - tl.load(mean_ptr + group) * w
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    where = nc.to(tl.int64) * plane + i
    tl.store(y_ptr + where, tl.load(x_ptr + where, mask=i < plane) * w + shift, mask=i < plane)


class ModelNew(nn.Module):
    def __init__(self, features, groups):
        super().__init__()
        self.gn = nn.GroupNorm(groups, features)

    def forward(self, x):
        x = x.contiguous()
        n, c = x.shape[:2]
        plane = x[0, 0].numel()
        groups = self.gn.num_groups
        mean, rstd = torch.empty(2, n * groups, device=x.device, dtype=torch.float32)
        y = torch.empty_like(x)
        per_group = c // groups
        group_statistics[(n * groups,)](x, mean, rstd, per_group * plane, self.gn.eps, BLOCK=2048, num_warps=8)
        group_apply[(n * c, triton.cdiv(plane, 1024))](
            x, mean, rstd, self.gn.weight, self.gn.bias, y, c, plane, per_group, BLOCK=1024
        )
        return y
