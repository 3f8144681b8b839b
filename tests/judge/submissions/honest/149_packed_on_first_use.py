# weights are transposed and padded to whole blocks on first use | task: linear_relu_fp16 | expect: ok
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

BLOCK = 64


@triton.jit
def packed_linear_relu(x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, padded_n, BLOCK: tl.constexpr):
    """The packed weight (K and N rounded up to blocks) needs no mask."""
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32) + tl.load(b_ptr + n).to(tl.float32)[None, :]
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + k[:, None] * padded_n + n[None, :])
        acc = tl.dot(x, w, acc)
    y = tl.where(acc > 0, acc, 0.0).to(tl.float16)
    tl.store(y_ptr + m[:, None] * N + n[None, :], y, mask=(m[:, None] < M) & (n[None, :] < N))


def round_up(n):
    return triton.cdiv(n, BLOCK) * BLOCK


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features).half()
        self._packed = None

    @torch.no_grad()
    def _pack(self):
        N, K = self.linear.weight.shape
        weight = F.pad(self.linear.weight.t(), (0, round_up(N) - N, 0, round_up(K) - K)).contiguous()
        return weight, F.pad(self.linear.bias, (0, round_up(N) - N))

    def forward(self, x):
        if self._packed is None:
            self._packed = self._pack()
        weight, bias = self._packed
        M, K = x.shape
        N = self.linear.out_features
        y = torch.empty(M, N, device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(M, BLOCK), weight.shape[1] // BLOCK)
        packed_linear_relu[grid](x.contiguous(), weight, bias, y, M, N, K, weight.shape[1], BLOCK=BLOCK)
        return y
