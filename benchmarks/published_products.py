"""Products of matrices at the sizes and in the layouts that KernelBench publishes, all in fp32."""

from __future__ import annotations

from published_parts import Entry, answer, entry, task

PRODUCT = """
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a_batch, a_row, a_col, b_batch, b_row, b_col,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    batch = tl.program_id(2).to(tl.int64)
    a_ptr += batch * a_batch
    b_ptr += batch * b_batch
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(@FIRST@, @LAST@, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K).to(tl.int64)
        a_where = m[:, None] * a_row + k[None, :] * a_col
        b_where = k[:, None] * b_row + n[None, :] * b_col
        a = tl.load(a_ptr + a_where, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + b_where, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c = c_ptr + (batch * M + m[:, None]) * N + n[None, :]
    tl.store(c, acc, mask=(m[:, None] < M) & (n[None, :] < N))


def product(a, b):
    batch, M, K = a.shape
    N = b.shape[2]
    c = torch.empty((batch, M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64), batch)
    product_kernel[grid](
        a, b, c, M, N, K, *a.stride(), *b.stride(), BLOCK_M=64, BLOCK_N=64, BLOCK_K=32,
    )
    return c
"""
FULL = {"first": "0", "last": "K"}
LOWER = {  # of lower triangles: the inner index lies between the column and the row
    "first": "tl.program_id(1) * BLOCK_N",
    "last": "tl.minimum(K, tl.program_id(0) * BLOCK_M + BLOCK_M)",
}
UPPER = {
    "first": "tl.program_id(0) * BLOCK_M",
    "last": "tl.minimum(K, tl.program_id(1) * BLOCK_N + BLOCK_N)",
}
SPLIT = """
@triton.jit
def part_kernel(
    a_ptr, b_ptr, part_ptr, M, N, K, length, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(2).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, length, BLOCK_K):
        k = part * length + start + tl.arange(0, BLOCK_K)
        a_where = m[:, None].to(tl.int64) * K + k[None, :]
        a = tl.load(a_ptr + a_where, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    out = part_ptr + (part * M + m[:, None]) * N + n[None, :]
    tl.store(out, acc, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def add_parts(part_ptr, c_ptr, n, parts, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.zeros((BLOCK,), tl.float32)
    for part in range(0, parts):
        a += tl.load(part_ptr + part * n + i, mask=i < n, other=0.0)
    tl.store(c_ptr + i, a, mask=i < n)
"""
SPLIT_FORWARD = """
A, B = A.contiguous(), B.contiguous()
M, K = A.shape
N = B.shape[1]
length = 32 * triton.cdiv(K, 32 * 128)
parts = triton.cdiv(K, length)
work = torch.empty((parts, M, N), device=A.device)
C = torch.empty((M, N), device=A.device)
grid = (triton.cdiv(M, 64), triton.cdiv(N, 64), parts)
part_kernel[grid](A, B, work, M, N, K, length, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
add_parts[(triton.cdiv(M * N, 256),)](work, C, M * N, parts, BLOCK=256)
return C
"""
VECTOR = """
@triton.jit
def row_products(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + row * K + k, mask=k < K, other=0.0)
        total += a * tl.load(b_ptr + k, mask=k < K, other=0.0)
    tl.store(c_ptr + row, tl.sum(total, axis=0))
"""
VECTOR_FORWARD = """
A, B = A.contiguous(), B.contiguous()
C = torch.empty((A.shape[0], 1), device=A.device)
row_products[(A.shape[0],)](A, B, C, A.shape[1], BLOCK=4096, num_warps=8)
return C
"""
SCALED = """
@triton.jit
def scaled_rows(a_ptr, b_ptr, c_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    b = tl.load(b_ptr + row * width + i, mask=i < width)
    tl.store(c_ptr + row * width + i, tl.load(a_ptr + row) * b, mask=i < width)
"""
SCALED_FORWARD = """
A, B = A.contiguous(), B.contiguous()
C = torch.empty_like(B)
scaled_rows[(B.shape[0], triton.cdiv(B.shape[1], 1024))](A, B, C, B.shape[1], BLOCK=1024)
return C
"""

ONE = "return product(A[None], B[None])[0]"
AB = "torch.randn(M, K), torch.randn(K, N)"
SQUARE = "torch.randn(N, N), torch.randn(N, N)"
MKN = {"M": 70, "K": 101, "N": 81}

PRODUCTS = (
    # name, GiB, constants, reference, inputs, the answer's forward, small sizes
    ("square_product", 0.1875, "N = 2048 * 2", "torch.matmul(A, B)", SQUARE, ONE, {"N": 77}),
    ("usual_product", 0.2188, "M = 1024 * 2\nK = 4096 * 2\nN = 2048 * 2", "A @ B", AB, ONE, MKN),
    ("product_16384", 3.0, "N = 16384", "torch.mm(A, B)", SQUARE, ONE, {"N": 77}),
    ("small_inner_product", 4.03, "M = 16384 * 2\nN = 16384 * 2\nK = 32 * 2", "torch.matmul(A, B)", AB, ONE, MKN),
    (
        "tall_by_wide", 4.01, "M = 32768\nN = 16", "torch.matmul(A, B)",
        "torch.randn(M, N), torch.randn(N, M)", ONE, {"M": 131, "N": 40},
    ),
    (
        "irregular_product", 0.3362, "M = 8205\nK = 2949\nN = 5921", "torch.matmul(A, B)", AB, ONE, MKN,
    ),
    (
        "batched_product", 1.75, "batch_size = 128\nm = 128 * 4\nk = 256 * 4\nn = 512 * 4", "torch.bmm(A, B)",
        "torch.randn(batch_size, m, k), torch.randn(batch_size, k, n)", "product(A, B)",
        {"batch_size": 2, "m": 40, "k": 70, "n": 65},
    ),
    (
        "product_3d", 0.1777, "N = 16\nM = 1024\nK = 2048\nL = 768", "torch.matmul(A, B)",
        "torch.randn(N, M, K), torch.randn(K, L)", "product(A, B[None].expand(A.shape[0], -1, -1))",
        {"N": 2, "M": 40, "K": 70, "L": 65},
    ),
    (
        "product_4d", 4.001, "b = 8\ni = 256\nj = 512\nl = 256\nk = 768", "torch.einsum('bijl,lk->bijk', A, B)",
        "torch.randn(b, i, j, l), torch.randn(l, k)",
        "return product(A.reshape(1, -1, A.shape[-1]), B[None]).view(*A.shape[:3], -1)",
        {"b": 2, "i": 3, "j": 11, "l": 70, "k": 65},
    ),
    (
        "transposed_left", 0.2188, "M = 1024 * 2\nK = 4096 * 2\nN = 2048 * 2", "torch.matmul(A.T, B)",
        "torch.randn(K, M), torch.randn(K, N)", "return product(A.T[None], B[None])[0]", MKN,
    ),
    (
        "transposed_right", 0.2188, "M = 1024 * 2\nK = 4096 * 2\nN = 2048 * 2", "torch.matmul(A, B.T)",
        "torch.randn(M, K), torch.randn(N, K)", "return product(A[None], B.T[None])[0]", MKN,
    ),
    (
        "transposed_both", 0.2188, "M = 1024 * 2\nK = 4096 * 2\nN = 2048 * 2", "torch.matmul(A.T, B.T)",
        "torch.randn(K, M), torch.randn(N, K)", "return product(A.T[None], B.T[None])[0]", MKN,
    ),
    (
        "symmetric_product", 0.1875, "N = 4096", "torch.matmul(A, B)",
        "A = torch.randn(N, N)\nA = (A + A.T) / 2\nB = torch.randn(N, N)\nB = (B + B.T) / 2\nreturn [A, B]",
        ONE, {"N": 77},
    ),
    (
        "upper_triangles", 0.1875, "N = 4096", "torch.triu(torch.matmul(A, B))",
        "A = torch.triu(torch.randn(N, N))\nB = torch.triu(torch.randn(N, N))\nreturn [A, B]", ONE, {"N": 147},
    ),
    (
        "lower_triangles", 0.1875, "M = 4096", "torch.tril(torch.matmul(A, B))",
        "A = torch.tril(torch.randn(M, M))\nB = torch.tril(torch.randn(M, M))\nreturn [A, B]", ONE, {"M": 147},
    ),
)  # fmt: skip


def products() -> list[Entry]:
    made = []
    for name, gib, constants, reference, inputs, forward, small in PRODUCTS:
        words = {"upper_triangles": UPPER, "lower_triangles": LOWER}.get(name, FULL)
        source = task(constants, reference, inputs, arguments="A, B")
        honest = answer(PRODUCT, forward, arguments="A, B", **words)
        # one value of the inner dimension is left out of every block
        change = ("mask=(k[:, None] < K) &", "mask=(k[:, None] < K - 1) &")
        if words is not FULL:
            change = ("BLOCK_K):", "2 * BLOCK_K):")
        made.append(entry(name, 1, gib, source, honest, change, **small))
    return made


def others() -> list[Entry]:
    drop = ("mask=(k[:, None] < K) &", "mask=(k[:, None] < K // 2) &")
    small = {"M": 70, "N": 50, "K": 1001}
    source = task("M = 256\nN = 256\nK = 131072 * 4", "torch.matmul(A, B)", AB, arguments="A, B")
    honest = answer(SPLIT, SPLIT_FORWARD, arguments="A, B")
    made = [entry("long_inner_product", 1, 1.0, source, honest, drop, **small)]
    inputs = "torch.randn(M, N), torch.randn(M, N)"
    source = task("M = 65536\nN = 16", "torch.matmul(A.T, B)", inputs, arguments="A, B")
    honest = honest.replace("A.contiguous()", "A.T.contiguous()")
    made.append(entry("wide_by_tall", 1, 0.0078, source, honest, drop, M=1001, N=17))
    inputs = "torch.randn(M, K), torch.randn(K, 1)"
    source = task("M = 256 * 8\nK = 131072 * 8", "torch.matmul(A, B)", inputs, arguments="A, B")
    honest = answer(VECTOR, VECTOR_FORWARD, arguments="A, B")
    made.append(entry("matrix_by_vector", 1, 8.0, source, honest, ("range(0, K", "range(BLOCK, K"), M=5, K=9001))
    source = task("M = 4096\nN = 4096", "torch.diag(A) @ B", "torch.randn(N), torch.randn(N, M)", arguments="A, B")
    honest = answer(SCALED, SCALED_FORWARD, arguments="A, B")
    change = ("a_ptr + row)", "a_ptr + row // 2)")
    made.append(entry("diagonal_product", 1, 0.125, source, honest, change, M=70, N=41))
    return made


ENTRIES = (*products(), *others())
