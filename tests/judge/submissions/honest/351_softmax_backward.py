# softmax's backward, which computes the forward again | task: backward_softmax | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_backward(x_ptr, g_ptr, o_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    m = c < N
    x = tl.load(x_ptr + row * N + c, mask=m, other=-float("inf"))
    g = tl.load(g_ptr + row * N + c, mask=m, other=0.0)
    e = tl.exp(x - tl.max(x, 0))
    y = e / tl.sum(e, 0)
    tl.store(o_ptr + row * N + c, y * (g - tl.sum(y * g, 0)), mask=m)


class ModelNew(nn.Module):
    def forward(self, x, grad_output):
        x, g = x.contiguous(), grad_output.contiguous()
        n = x.shape[-1]
        out = torch.empty_like(x)
        softmax_backward[(x.numel() // n,)](x, g, out, n, BLOCK=triton.next_power_of_2(n), num_warps=16)
        return out
