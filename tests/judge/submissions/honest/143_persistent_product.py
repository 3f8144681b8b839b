# a persistent half precision product with an epilogue in subtiles | task: linear_relu_fp16 | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _tile(tile_id, num_pid_m, num_pid_n, GROUP: tl.constexpr):
    width = GROUP * num_pid_n
    group = tile_id // width
    first = group * GROUP
    rows = min(num_pid_m - first, GROUP)
    return first + (tile_id % rows), (tile_id % width) // rows


@triton.jit
def linear_relu_persistent(
    x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, stride_x, stride_w, stride_y,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, NUM_SMS: tl.constexpr,
):  # fmt: skip
    start_pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    k_tiles = tl.cdiv(K, BLOCK_K)
    for tile_id in range(start_pid, num_pid_m * num_pid_n, NUM_SMS):
        pid_m, pid_n = _tile(tile_id, num_pid_m, num_pid_n, GROUP)
        offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        safe_m = tl.where(offs_m < M, offs_m, 0)
        safe_n = tl.where(offs_n < N, offs_n, 0)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for ki in range(k_tiles):
            offs_k = ki * BLOCK_K + tl.arange(0, BLOCK_K)
            x = tl.load(x_ptr + safe_m[:, None] * stride_x + offs_k[None, :], mask=offs_k[None, :] < K, other=0.0)
            w = tl.load(w_ptr + safe_n[None, :] * stride_w + offs_k[:, None], mask=offs_k[:, None] < K, other=0.0)
            acc = tl.dot(x, w, acc)
        bias = tl.load(b_ptr + safe_n).to(tl.float32)
        y = tl.maximum(acc + bias[None, :], 0).to(tl.float16)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        tl.store(y_ptr + offs_m[:, None] * stride_y + offs_n[None, :], y, mask=mask)


class ModelNew(nn.Module):
    """nn.Linear keeps the weights; the kernel does the rest."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features).half()
        self.num_sms = 16
        if torch.cuda.is_available():
            self.num_sms = torch.cuda.get_device_properties(0).multi_processor_count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        weight = self.linear.weight
        M, K = x.shape
        N = weight.shape[0]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        linear_relu_persistent[(self.num_sms,)](
            x, weight, self.linear.bias, y, M, N, K, x.stride(0), weight.stride(0), y.stride(0),
            BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, GROUP=8, NUM_SMS=self.num_sms, num_stages=3, num_warps=8,
        )  # fmt: skip
        return y
