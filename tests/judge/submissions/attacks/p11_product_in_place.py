# PyTorch's product in place, on a bias that a kernel has written | task: p_product_and_bias | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_rows(b_ptr, out_ptr, n, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(b_ptr + i % N, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, a, b, bias):
        M, N = a.shape[0], b.shape[1]
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
        bias_rows[(triton.cdiv(M * N, 1024),)](bias, out, M * N, N, BLOCK=1024)
        return out.addmm_(a, b)
