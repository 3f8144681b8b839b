# statistics of a batch in parts, as a grid of fixed size shares them | task: batch_norm | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bn_partial_kernel(x_ptr, sum_ptr, sq_ptr, N, C, S, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0)
    k = tl.program_id(1)
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    acc2 = tl.zeros([BLOCK], dtype=tl.float32)
    n = k
    while n < N:
        base = x_ptr + (n.to(tl.int64) * C + c) * S
        for s in range(0, S, BLOCK):
            o = s + tl.arange(0, BLOCK)
            v = tl.load(base + o, mask=o < S, other=0.0)
            acc += v
            acc2 += v * v
        n += SPLITS
    tl.store(sum_ptr + c * SPLITS + k, tl.sum(acc, 0))
    tl.store(sq_ptr + c * SPLITS + k, tl.sum(acc2, 0))


@triton.jit
def bn_finish_kernel(
    sum_ptr, sq_ptr, w_ptr, b_ptr, rm_ptr, rv_ptr, scale_ptr, shift_ptr, count, momentum, eps, SPLITS: tl.constexpr
):
    c = tl.program_id(0)
    k = tl.arange(0, SPLITS)
    mean = tl.sum(tl.load(sum_ptr + c * SPLITS + k), 0) / count
    var = tl.sum(tl.load(sq_ptr + c * SPLITS + k), 0) / count - mean * mean
    var = tl.maximum(var, 0.0)
    scale = tl.load(w_ptr + c) * tl.rsqrt(var + eps)
    tl.store(scale_ptr + c, scale)
    tl.store(shift_ptr + c, tl.load(b_ptr + c) - mean * scale)
    rm = tl.load(rm_ptr + c)
    rv = tl.load(rv_ptr + c)
    tl.store(rm_ptr + c, (1 - momentum) * rm + momentum * mean)
    tl.store(rv_ptr + c, (1 - momentum) * rv + momentum * var * count / (count - 1))


@triton.jit
def bn_apply_kernel(x_ptr, y_ptr, scale_ptr, shift_ptr, C, S, BLOCK: tl.constexpr):
    nc = tl.program_id(0)
    c = nc % C
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = o < S
    base = nc.to(tl.int64) * S
    v = tl.load(x_ptr + base + o, mask=mask)
    v = v * tl.load(scale_ptr + c) + tl.load(shift_ptr + c)
    tl.store(y_ptr + base + o, tl.maximum(v, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, num_features: int):
        super().__init__()
        self.bn = nn.BatchNorm2d(num_features)

    def forward(self, x):
        bn = self.bn
        N, C, H, W = x.shape
        S = H * W
        x = x.contiguous()
        y = torch.empty_like(x)
        BLOCK = 1024
        if bn.training:
            SPLITS = 16
            part = torch.empty((2, C, SPLITS), device=x.device, dtype=torch.float32)
            coef = torch.empty((2, C), device=x.device, dtype=torch.float32)
            bn_partial_kernel[(C, SPLITS)](x, part[0], part[1], N, C, S, SPLITS=SPLITS, BLOCK=BLOCK, num_warps=4)
            bn_finish_kernel[(C,)](
                part[0],
                part[1],
                bn.weight,
                bn.bias,
                bn.running_mean,
                bn.running_var,
                coef[0],
                coef[1],
                float(N * S),
                bn.momentum,
                bn.eps,
                SPLITS=SPLITS,
                num_warps=1,
            )
            bn.num_batches_tracked += 1
            scale, shift = coef[0], coef[1]
        else:
            scale = bn.weight * torch.rsqrt(bn.running_var + bn.eps)
            shift = bn.bias - bn.running_mean * scale
        bn_apply_kernel[(N * C, triton.cdiv(S, BLOCK))](x, y, scale, shift, C, S, BLOCK=BLOCK, num_warps=4)
        return y
