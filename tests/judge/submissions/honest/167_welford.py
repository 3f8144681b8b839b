# Welford's mean and variance by tl.reduce with a combine function of its own | task: group_norm | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def welford_combine(mean_1, m2_1, weight_1, mean_2, m2_2, weight_2):
    delta = mean_2 - mean_1
    weight = weight_1 + weight_2
    part = tl.where(weight == 0.0, 0.0, weight_2 / tl.maximum(weight, 1.0))
    return mean_1 + delta * part, m2_1 + m2_2 + delta * delta * weight_1 * part, weight


@triton.jit
def group_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, groups, per_group, plane, eps, BLOCK: tl.constexpr):
    """One program per group of one image; the moments of each lane are combined at the end."""
    pid = tl.program_id(0)
    size = per_group * plane
    first_channel = (pid % groups) * per_group
    base = pid.to(tl.int64) * size
    mean = tl.zeros((BLOCK,), tl.float32)
    m2 = tl.zeros((BLOCK,), tl.float32)
    weight = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        i = start + tl.arange(0, BLOCK)
        mask = i < size
        x = tl.load(x_ptr + base + i, mask=mask, other=0.0)
        delta = x - mean
        weight += tl.where(mask, 1.0, 0.0)
        mean += tl.where(mask, delta / tl.maximum(weight, 1.0), 0.0)
        m2 += tl.where(mask, delta * (x - mean), 0.0)
    mean_all, m2_all, count = tl.reduce((mean, m2, weight), 0, welford_combine)
    rstd = 1.0 / tl.sqrt(m2_all / count + eps)
    for start in range(0, size, BLOCK):
        i = start + tl.arange(0, BLOCK)
        mask = i < size
        channel = first_channel + i // plane
        x = tl.load(x_ptr + base + i, mask=mask, other=0.0)
        gamma = tl.load(w_ptr + channel, mask=mask)
        beta = tl.load(b_ptr + channel, mask=mask)
        tl.store(y_ptr + base + i, (x - mean_all) * rstd * gamma + beta, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features, groups):
        super().__init__()
        self.gn = nn.GroupNorm(groups, features)

    def forward(self, x):
        gn, x = self.gn, x.contiguous()
        y = torch.empty_like(x)
        batch, channels = x.shape[0], x.shape[1]
        plane = x.numel() // (batch * channels)
        group_norm_kernel[(batch * gn.num_groups,)](
            x, gn.weight, gn.bias, y, gn.num_groups, channels // gn.num_groups, plane, gn.eps, BLOCK=1024, num_warps=8
        )
        return y
