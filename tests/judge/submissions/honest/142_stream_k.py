# stream-K: programs share the inner iterations of all tiles evenly | task: square_matmul | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def accumulate(a_ptr, b_ptr, rm, rn, first, last, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The iterations from first to last of one tile."""
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(first, last):
        rk = i * BK + tl.arange(0, BK)
        a = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        b = tl.load(b_ptr + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32x3")
    return acc


@triton.jit
def stream_k(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    per_tile = tl.cdiv(K, BK)
    across = tl.cdiv(N, BN)
    total = tl.cdiv(M, BM) * across * per_tile
    share = tl.cdiv(total, tl.num_programs(0))
    now = tl.program_id(0) * share
    end = tl.minimum(now + share, total)
    while now < end:
        tile = now // per_tile
        first = now - tile * per_tile
        last = tl.minimum(per_tile, first + end - now)
        rm = (tile // across) * BM + tl.arange(0, BM)
        rn = (tile % across) * BN + tl.arange(0, BN)
        acc = accumulate(a_ptr, b_ptr, rm, rn, first, last, M, N, K, BM, BN, BK)
        c_ptrs = c_ptr + rm[:, None] * N + rn[None, :]
        inside = (rm[:, None] < M) & (rn[None, :] < N)
        if last - first == per_tile:  # nobody else works on this tile
            tl.store(c_ptrs, acc, mask=inside)
        else:
            tl.atomic_add(c_ptrs, acc, mask=inside, sem="relaxed")
        now += last - first


def num_sms(device: torch.device) -> int:
    if device.type != "cuda":
        return 5
    return torch.cuda.get_device_properties(device).multi_processor_count


class ModelNew(nn.Module):
    def forward(self, A, B):
        A, B = A.contiguous(), B.contiguous()
        (M, K), N = A.shape, B.shape[1]
        C = torch.zeros((M, N), device=A.device, dtype=A.dtype)
        stream_k[(2 * num_sms(A.device),)](A, B, C, M, N, K, BM=64, BN=64, BK=32, num_warps=4)
        return C
