# the last 24 steps of a recurrent network in 16 bits | task: rnn_bf16 | expect: incorrect wrong_values
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(u_ptr, v_ptr, h_ptr, n, t, su, hidden, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, col = i // hidden, i % hidden
    z = tl.load(u_ptr + row * su + t * hidden + col, mask=i < n, other=0.0).to(tl.float32)
    z += tl.load(v_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    e = tl.exp(-2.0 * tl.abs(z))
    y = (1 - e) / (1 + e)
    tl.store(h_ptr + i, tl.where(z < 0, -y, y), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.a = nn.Linear(features, hidden, dtype=torch.bfloat16)
        self.b = nn.Linear(hidden, hidden, dtype=torch.bfloat16)

    def forward(self, x):
        x = x[:, -24:]
        u = self.a(x)
        steps, hidden = u.shape[1:]
        h = torch.zeros(len(x), hidden, dtype=x.dtype, device=x.device)
        n = h.numel()
        for t in range(steps):
            v = self.b(h)
            h = torch.empty_like(v)
            kernel[(triton.cdiv(n, 256),)](u, v, h, n, t, u.stride(0), hidden, BLOCK=256)
        return h
