# a tuple for a list | task: mean_and_spread_list | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def statistics(x_ptr, m_ptr, s_ptr, N, B: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, B)
    x = tl.load(x_ptr + row * N + j, mask=j < N, other=0.0)
    mean = tl.sum(x) / N
    c = tl.where(j < N, x - mean, 0.0)
    tl.store(m_ptr + row, mean)
    tl.store(s_ptr + row, tl.sqrt(tl.sum(c * c) / (N - 1)))


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        mean = torch.empty(M, device=x.device)
        std = torch.empty(M, device=x.device)
        statistics[(M,)](x, mean, std, N, B=triton.next_power_of_2(N))
        return mean, std
