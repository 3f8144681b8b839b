# block pointers with boundary checks, one batch per third axis, fp32 sums of bf16 | task: batched_matmul | expect: ok
import torch
import triton
import triton.language as tl


@triton.jit
def bmm(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    z = tl.program_id(2).to(tl.int64)
    top, left = tl.program_id(1) * BM, tl.program_id(0) * BN
    a_block = tl.make_block_ptr(a + z * M * K, (M, K), (K, 1), (top, 0), (BM, BK), (1, 0))
    b_block = tl.make_block_ptr(b + z * K * N, (K, N), (N, 1), (0, left), (BK, BN), (1, 0))
    c_block = tl.make_block_ptr(c + z * M * N, (M, N), (N, 1), (top, left), (BM, BN), (1, 0))
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        x = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
        y = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")
        total += tl.dot(x, y)
        a_block = tl.advance(a_block, (0, BK))
        b_block = tl.advance(b_block, (BK, 0))
    tl.store(c_block, total.to(c.dtype.element_ty), boundary_check=(0, 1))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (Z, M, K), N = a.shape, b.shape[-1]
        c = a.new_empty(Z, M, N)
        tile = {"BM": 64, "BN": 64, "BK": 32}
        bmm[(triton.cdiv(N, tile["BN"]), triton.cdiv(M, tile["BM"]), Z)](a, b, c, M, N, K, **tile, num_warps=4)
        return c
