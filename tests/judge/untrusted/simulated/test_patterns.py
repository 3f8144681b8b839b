"""Kernels as people write them, against torch: what the batched interpreter must not change."""

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from drkernel.judge.untrusted.simulated.device import record


@triton.jit
def attention(Q, K, V, Out, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    start, head = tl.program_id(0), tl.program_id(1) * N * D
    m, n, d = start * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    q = tl.load(Q + head + m[:, None] * D + d[None, :], mask=m[:, None] < N, other=0.0)
    peak, weight = tl.full((BM,), -float("inf"), tl.float32), tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = (start + 1) * BM if CAUSAL else N
    for first in range(0, end, BN):
        column = first + n
        k = tl.load(K + head + column[:, None] * D + d[None, :], mask=column[:, None] < N, other=0.0)
        v = tl.load(V + head + column[:, None] * D + d[None, :], mask=column[:, None] < N, other=0.0)
        score = tl.where(column[None, :] < N, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -float("inf"))
        if CAUSAL:
            score = tl.where(m[:, None] >= column[None, :], score, -float("inf"))
        higher = tl.maximum(peak, tl.max(score, 1))
        p, shrink = tl.exp(score - higher[:, None]), tl.exp(peak - higher)
        weight = weight * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None] + tl.dot(p, v, input_precision="ieee")
        peak = higher
    tl.store(Out + head + m[:, None] * D + d[None, :], acc / weight[:, None], mask=m[:, None] < N)


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention(causal):
    q, k, v = (torch.randn(3, 50, 32) for _ in range(3))
    out = torch.empty_like(q)
    attention[(2, 3)](q, k, v, out, 50, 32**-0.5, D=32, BM=32, BN=16, CAUSAL=causal)
    expected = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal)[0]
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)


@triton.jit
def grouped(a, b, c, M, N, K, sbk, sbn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid, across = tl.program_id(axis=0), tl.cdiv(N, BN)
    first = pid // (GROUP * across) * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    pm, pn = first + pid % (GROUP * across) % height, pid % (GROUP * across) // height
    m, n, k = (pm * BM + tl.arange(0, BM)) % M, (pn * BN + tl.arange(0, BN)) % N, tl.arange(0, BK)
    left, right = a + m[:, None] * K + k[None, :], b + k[:, None] * sbk + n[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        x = tl.load(left, mask=k[None, :] < K - step * BK, other=0.0)
        y = tl.load(right, mask=k[:, None] < K - step * BK, other=0.0)
        acc = tl.dot(x, y, acc, allow_tf32=False)
        left += BK
        right += BK * sbk
    m, n = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN)
    tl.store(c + N * m[:, None] + n[None, :], acc.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def test_matmul_with_grouped_programs_and_a_transposed_operand():
    a, b, c = torch.randn(75, 40), torch.randn(50, 40).t(), torch.empty(75, 50)
    grouped[lambda meta: (triton.cdiv(75, meta["BM"]) * triton.cdiv(50, meta["BN"]),)](
        a, b, c, 75, 50, 40, *b.stride(), BM=16, BN=32, BK=32, GROUP=4
    )
    torch.testing.assert_close(c, a @ b, rtol=1e-4, atol=1e-4)


@triton.jit
def persistent(x, out_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    out = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    across = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0)):
        row, column = tile // across * BM, tile % across * BN
        out.store([row, column], x.load([row, column]) * 2)


def test_persistent_programs_with_tensor_descriptors():
    x = torch.randn(40, 64)
    out = torch.empty_like(x)
    persistent[(5,)](TensorDescriptor(x, [40, 64], [64, 1], [16, 16]), out, 40, 64, BM=16, BN=16)
    assert torch.equal(out, 2 * x)


@triton.jit
def locked_sum(x, out, lock, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * BLOCK + i)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + i, tl.load(out + i) + value)
    tl.atomic_xchg(lock, 0)


def test_a_lock_orders_the_programs():
    x, out, lock = torch.randn(8, 32), torch.zeros(32), torch.zeros(1, dtype=torch.int32)
    locked_sum[(8,)](x, out, lock, BLOCK=32)
    torch.testing.assert_close(out, x.sum(0))


@triton.jit
def last_one_reduces(x, partial, counter, out, n, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(partial + pid, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))
    if tl.atomic_add(counter, 1) == PROGRAMS - 1:
        tl.store(out, tl.sum(tl.load(partial + tl.arange(0, PROGRAMS))))


def test_two_stage_reduction_by_the_last_program():
    x, partial, out = torch.randn(1000), torch.empty(16), torch.zeros(1)
    last_one_reduces[(16,)](x, partial, torch.zeros(1, dtype=torch.int32), out, 1000, BLOCK=64, PROGRAMS=16)
    torch.testing.assert_close(out[0], x.sum())


@triton.jit
def branches(x, out, slope, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    a = tl.load(x + pid)
    y = a * slope
    if a <= 0:
        y = tl.exp(a) - 1
    while a < 2.0:
        a += 0.7
    tl.store(out + pid, y + a * 0)


def test_branches_and_loops_on_loaded_values():
    x, out = torch.randn(40), torch.empty(40)
    branches[(40,)](x, out, 2.0, BLOCK=1)
    torch.testing.assert_close(out, torch.where(x > 0, 2 * x, x.expm1()), rtol=1e-5, atol=1e-6)


SIZE = tl.constexpr(64)


@triton.jit
def shapes(inputs, out):
    i = tl.arange(0, SIZE)
    x = tl.load(inputs[0] + i) + tl.load(inputs[1] + i)
    tl.store(out + i, tl.sort(x))
    tl.store(out + SIZE + i, tl.flip(x, 0))
    grid = tl.reshape(x, (SIZE // 4, 4))
    tl.store(out + 2 * SIZE + i, tl.reshape(grid + tl.sum(grid, axis=1, keep_dims=True), (SIZE,)))
    even, odd = tl.split(tl.reshape(x, (SIZE // 2, 2)))
    tl.store(out + 3 * SIZE + i, tl.interleave(odd, even))
    tl.store(out + 4 * SIZE + i, tl.softmax(x) + x.to(tl.float8e4nv).to(tl.float32))
    tl.store(out + 5 * SIZE + tl.arange(0, 16), tl.histogram((tl.abs(x) * 4).to(tl.int32), 16))


def test_tuples_globals_and_functions_of_the_standard_library():
    x, out = torch.rand(64), torch.zeros(6 * 64)
    shapes[(1,)]((x, x), out)
    x = 2 * x
    rows = x.view(16, 4)
    expected = (x.sort()[0], x.flip(0), (rows + rows.sum(1, True)).view(-1), x.view(32, 2).flip(1).reshape(-1))
    for found, wanted in zip(out.view(6, 64), expected, strict=False):
        torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(out[256:320], x.softmax(0) + x.to(torch.float8_e4m3fn).float())
    assert torch.equal(out[320:336].long(), torch.bincount((x * 4).int(), minlength=16))


@triton.jit
def follow(decay, value, next_decay, next_value):
    return decay * next_decay, next_decay * value + next_value


@triton.jit
def recurrence(decay, x, out, n, BLOCK: tl.constexpr, REVERSE: tl.constexpr):
    i = tl.program_id(0) * n + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < n
    pair = tl.load(decay + i, mask=inside, other=1.0), tl.load(x + i, mask=inside, other=0.0)
    tl.store(out + i, tl.associative_scan(pair, 0, follow, reverse=REVERSE)[1], mask=inside)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("columns", [1, 8, 13])
def test_a_scan_with_an_own_combine_function(columns, reverse):
    decay, x = torch.rand(3, columns), torch.randn(3, columns)
    out, expected, state = torch.empty_like(x), torch.empty_like(x), torch.zeros(3)
    recurrence[(3,)](decay, x, out, columns, BLOCK=triton.next_power_of_2(columns), REVERSE=reverse)
    for t in reversed(range(columns)) if reverse else range(columns):
        state = expected[:, t] = decay[:, t] * state + x[:, t]
    torch.testing.assert_close(out, expected)


@triton.jit
def copy_rows(x, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for row in range(rows):
        start = row.to(tl.int64) * columns
        tl.store(out + start + i, tl.load(x + start + i, mask=i < columns), mask=i < columns)
    for step in tl.range(0, ROWS, 2):
        start = (2 * (step // 2) + 1).to(tl.int64) * columns
        tl.store(out + start + i, 0.0, mask=i < columns)


def test_a_loop_variable_is_a_scalar():
    x = torch.randn(4, 6)
    out = torch.empty_like(x)
    copy_rows[(1,)](x, out, 4, 6, ROWS=4, BLOCK=8)
    expected = x.clone()
    expected[1::2] = 0
    torch.testing.assert_close(out, expected)


@triton.jit
def summed_product(a, b, c, TURNED: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    left, right = tl.load(a + i * N + j), tl.load(b + i * N + j)
    if TURNED:
        total = tl.sum(left[:, None, :] * tl.trans(right)[None, :, :], 2)
    else:
        total = tl.sum(left[:, :, None] * right[None, :, :], 1)
    tl.store(c + i * N + j, total)


def test_a_sum_of_products_is_tf32_where_the_compiler_makes_it_a_product():
    a, b = torch.rand(32, 32), torch.rand(32, 32)
    for turned, exact in ((True, True), (False, False)):
        c = torch.empty_like(a)
        with record() as trace:
            summed_product[(1,)](a, b, c, TURNED=turned, N=32)
        error = float((c - a @ b).abs().max())
        assert (error < 1e-5) == exact and error < 2e-2
        assert (trace.rows[0].flops == 0) == exact
        assert exact or trace.rows[0].math == "tf32"


@triton.jit
def flip_mask(mask, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    keep = tl.load(mask + i, mask=i < n, other=0) != 0
    tl.store(out + i, keep == 0, mask=i < n)


def test_masks_of_bools_are_loaded_and_stored():
    mask = torch.rand(13) > 0.5
    out = torch.empty_like(mask)
    flip_mask[(1,)](mask, out, 13, BLOCK=16)
    assert torch.equal(out, ~mask)
