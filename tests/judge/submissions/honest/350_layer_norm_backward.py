# layer norm backward: sums of parts for the weights, then a second stage | task: backward_layer_norm | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def dx_kernel(x_ptr, g_ptr, w_ptr, dx_ptr, pw_ptr, pb_ptr, M, N, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < N
    w = tl.load(w_ptr + c, mask=m, other=0.0)
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    for k in range(ROWS):
        row = pid * ROWS + k
        inside = m & (row < M)
        x = tl.load(x_ptr + row * N + c, mask=inside, other=0.0)
        g = tl.load(g_ptr + row * N + c, mask=inside, other=0.0)
        mean = tl.sum(x, 0) / N
        d = tl.where(m, x - mean, 0.0)
        rstd = 1.0 / tl.sqrt(tl.sum(d * d, 0) / N + eps)
        xhat = d * rstd
        wg = w * g
        a = tl.sum(wg, 0) / N
        b = tl.sum(wg * xhat, 0) / N
        tl.store(dx_ptr + row * N + c, (wg - a - xhat * b) * rstd, mask=inside)
        dw += g * xhat
        db += g
    tl.store(pw_ptr + pid * N + c, dw, mask=m)
    tl.store(pb_ptr + pid * N + c, db, mask=m)


@triton.jit
def sum_kernel(pw_ptr, pb_ptr, dw_ptr, db_ptr, P, N, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, P, PARTS):
        r = start + tl.arange(0, PARTS)
        m = (r < P)[:, None] & (c < N)[None, :]
        dw += tl.sum(tl.load(pw_ptr + r[:, None] * N + c[None, :], mask=m, other=0.0), 0)
        db += tl.sum(tl.load(pb_ptr + r[:, None] * N + c[None, :], mask=m, other=0.0), 0)
    tl.store(dw_ptr + c, dw, mask=c < N)
    tl.store(db_ptr + c, db, mask=c < N)


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.norm = nn.LayerNorm(cols)

    def forward(self, x, grad_output):
        x, g = x.contiguous(), grad_output.contiguous()
        N = x.shape[-1]
        M = x.numel() // N
        rows = 8
        programs = triton.cdiv(M, rows)
        dx = torch.empty_like(x)
        pw = torch.empty((programs, N), device=x.device, dtype=torch.float32)
        pb = torch.empty((programs, N), device=x.device, dtype=torch.float32)
        dw, db = torch.empty_like(self.norm.weight), torch.empty_like(self.norm.bias)
        block = triton.next_power_of_2(N)
        dx_kernel[(programs,)](
            x, g, self.norm.weight, dx, pw, pb, M, N, self.norm.eps, ROWS=rows, BLOCK=block, num_warps=16
        )
        sum_kernel[(triton.cdiv(N, 64),)](pw, pb, dw, db, programs, N, PARTS=32, BLOCK=64)
        return dx, dw, db
