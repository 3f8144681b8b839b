# a sparse matrix by rows of unlike length | task: sparse_product | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(p_ptr, c_ptr, v_ptr, x_ptr, y_ptr, D, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for t in range(tl.load(p_ptr + r), tl.load(p_ptr + r + 1)):
        j = tl.load(c_ptr + t)
        acc += tl.load(v_ptr + t) * tl.load(x_ptr + j * D + c, mask=c < D, other=0.0)
    tl.store(y_ptr + r * D + c, acc, mask=c < D)


class ModelNew(nn.Module):
    def forward(self, rowptr, col, val, x):
        n = rowptr.numel() - 1
        y = torch.empty(n, x.shape[1], device=x.device)
        k[(n,)](rowptr, col, val, x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
