# tl.make_tensor_descriptor on GPUs that have TMA, pointers elsewhere | task: linear_relu_fp16 | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_relu_tma(
    x_ptr, w_ptr, bias_ptr, out_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    x_desc = tl.make_tensor_descriptor(x_ptr, shape=[M, K], strides=[K, 1], block_shape=[BLOCK_M, BLOCK_K])
    w_desc = tl.make_tensor_descriptor(w_ptr, shape=[N, K], strides=[K, 1], block_shape=[BLOCK_N, BLOCK_K])
    out_desc = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N])
    off_m = tl.program_id(0) * BLOCK_M
    off_n = tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x = x_desc.load([off_m, k])
        w = w_desc.load([off_n, k])
        acc = tl.dot(x, w.T, acc)
    offs_n = off_n + tl.arange(0, BLOCK_N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    acc = tl.maximum(acc + bias[None, :], 0.0)
    out_desc.store([off_m, off_n], acc.to(tl.float16))


@triton.jit
def linear_relu_pointers(
    x_ptr, w_ptr, bias_ptr, out_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + offs_m[:, None] * K + k[None, :], mask=(offs_m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + offs_n[None, :] * K + k[:, None], mask=(offs_n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, w, acc)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    acc = tl.maximum(acc + bias[None, :], 0.0).to(tl.float16)
    tl.store(out_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def _workspace(size: int, alignment: int, stream):
    """Where the descriptors that kernels make are kept."""
    return torch.empty(size, device="cuda", dtype=torch.int8)


def has_tma(device) -> bool:
    return torch.cuda.get_device_capability(device)[0] >= 9


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features).half()

    def forward(self, x):
        x = x.contiguous()
        weight = self.linear.weight.contiguous()
        M, K = x.shape
        N = weight.shape[0]
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
        # TMA wants rows that start at multiples of 16 bytes.
        if has_tma(x.device) and K % 8 == 0 and N % 8 == 0:
            triton.set_allocator(_workspace)
            kernel = linear_relu_tma
        else:
            kernel = linear_relu_pointers
        kernel[grid](x, weight, self.linear.bias, out, M, N, K, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64)
        return out
