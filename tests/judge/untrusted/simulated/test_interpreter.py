"""What kernels compute on the simulated device, and what is counted of them; every count is worked out by hand."""

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from tests.judge.untrusted.simulated.launching import launch


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)


def test_vector_add_counts_each_unmasked_byte_and_program():
    x, y, out = torch.randn(1000), torch.randn(1000), torch.empty(1000)
    row = launch(add, (8,), x, y, out, 1000, BLOCK=128)
    assert torch.equal(out, x + y)
    assert (row.name, row.site.split(":")[0], row.triton, row.calls, row.programs) == ("add", "add", True, 1, 8)
    assert [(t.numel, t.unique, t.total, t.stored) for t in row.tensors] == [
        (1000, 8000, 8000, False),
        (1000, 4000, 4000, True),
    ]
    assert row.output_numel == 1000
    assert row.block == 128


def test_a_tensor_read_twice_is_unique_once():
    x, out = torch.randn(256), torch.empty(256)
    row = launch(add, (2,), x, x, out, 256, BLOCK=128)
    assert (row.bytes_unique, row.bytes_total) == (2048, 3072)


@triton.jit
def copy_columns(x, out, rows, columns, BLOCK: tl.constexpr):
    column = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.store(out + column * rows + i, tl.load(x + i * columns + column, mask=i < rows), mask=i < rows)


def test_a_strided_column_costs_a_sector_per_element():
    x, out = torch.randn(64, 32), torch.empty(32, 64)
    row = launch(copy_columns, (32,), x, out, 64, 32, BLOCK=64)
    assert torch.equal(out, x.T)
    loaded, stored = row.tensors
    assert (loaded.unique, loaded.total) == (64 * 32 * 4, 64 * 32 * 32)
    assert (stored.unique, stored.total) == (64 * 32 * 4, 64 * 32 * 4)


@triton.jit
def every_fourth(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + 4 * i))


def test_a_run_with_gaps_costs_its_sectors():
    row = launch(every_fourth, (1,), torch.randn(256), torch.empty(64), BLOCK=64)
    assert next(t.total for t in row.tensors if not t.stored) in (31 * 32, 32 * 32)


def test_what_a_program_loads_again_is_counted_with_what_it_moved_in_between():
    x, out = torch.randn(256), torch.empty(256)
    row = launch(add, (2,), x, x, out, 256, BLOCK=128)
    assert (row.reused, row.reach) == (1024, 1024 * 512)


def test_what_other_programs_loaded_is_not_loaded_again():
    x, out = torch.randn(64, 32), torch.empty(32, 64)
    assert launch(copy_columns, (32,), x, out, 64, 32, BLOCK=64).reused == 0


@triton.jit
def transpose(x, out, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    tl.store(out + i * N + j, tl.load(x + j * N + i))


@triton.jit
def rows_of(x, out, columns, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row * columns + i, tl.load(x + row * columns + i, mask=i < columns), mask=i < columns)


def test_a_row_that_starts_between_sectors_costs_its_bytes():
    x = torch.randn(10, 37)
    row = launch(rows_of, (10,), x, torch.empty_like(x), 37, BLOCK=64)
    assert row.bytes_total == row.bytes_unique == 2 * 10 * 37 * 4


def test_a_transposed_tile_touches_each_sector_once():
    x, out = torch.randn(32, 32), torch.empty(32, 32)
    row = launch(transpose, (1,), x, out, N=32)
    assert torch.equal(out, x.T)
    assert row.bytes_total == row.bytes_unique == 2 * 4096


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        left = tl.load(
            a + m[:, None] * K + (start + k)[None, :], mask=(m[:, None] < M) & ((start + k)[None, :] < K), other=0.0
        )
        right = tl.load(
            b + (start + k)[:, None] * N + n[None, :], mask=((start + k)[:, None] < K) & (n[None, :] < N), other=0.0
        )
        acc = tl.dot(left, right, acc, input_precision=PRECISION)
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def product(dtype, precision):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(shape, generator=generator).to(dtype) for shape in ((50, 70), (70, 40)))
    c = torch.empty(50, 40)
    row = launch(matmul, (4, 3), a, b, c, 50, 40, 70, BM=16, BN=16, BK=32, PRECISION=precision)
    error = (c.double() - a.double() @ b.double()).abs().max().item()
    return row, error


def test_dot_counts_the_products_without_the_padding():
    row, error = product(torch.float32, "ieee")
    assert row.flops == pytest.approx(2 * 50 * 40 * 70, rel=0.1)
    assert (row.math, row.programs) == ("fp32", 12)
    assert error < 1e-4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_dot_accumulates_in_fp32(dtype):
    row, error = product(dtype, "ieee")
    assert row.math == "half"
    assert error < 1e-4


def test_tf32_is_the_default_and_loses_mantissa_bits():
    row, error = product(torch.float32, None)
    assert row.math == "tf32"
    assert 1e-3 < error < 5e-2
    assert product(torch.float32, "tf32x3")[1] < 1e-4


@triton.jit
def round_trip(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i).to(tl.bfloat16)
    tl.store(out + i, value * value + value)


def test_bf16_casts_and_arithmetic_round_to_nearest_even():
    x = torch.randn(256)
    x[:4] = torch.tensor([1.00390625, 1.01171875, float("inf"), float("nan")])  # two ties, two specials
    out = torch.empty(256, dtype=torch.bfloat16)
    launch(round_trip, (1,), x, out, BLOCK=256)
    value = x.bfloat16()
    torch.testing.assert_close(out, value * value + value, rtol=0, atol=0, equal_nan=True)


@triton.jit
def times_a_number(x, out, by, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 0.7 * by)


def test_a_number_beside_a_block_of_bf16_has_its_format():
    x, out = torch.randn(256).bfloat16(), torch.empty(256, dtype=torch.bfloat16)
    launch(times_a_number, (1,), x, out, 1.3, BLOCK=256)
    number = lambda value: torch.tensor(value, dtype=torch.bfloat16)
    torch.testing.assert_close(out, x * number(0.7) * number(1.3), rtol=0, atol=0)


@triton.jit
def overrun(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, 1.0)


def test_an_access_outside_of_every_tensor_names_the_line_and_touches_nothing():
    x = torch.zeros(100)
    with pytest.raises(
        RuntimeError, match=r"kernel `overrun` line \d+ `tl.store\(x \+ i, 1.0\)`: store outside.*element 100 of `x`"
    ):
        launch(overrun, (1,), x, BLOCK=128)
    assert x.sum() == 0


@triton.jit
def misspelt(x):
    tl.store(x, tl.exq(1.0))


def test_an_error_in_a_kernel_carries_its_line():
    with pytest.raises(
        Exception, match=r"kernel `misspelt` line \d+ `tl.store\(x, tl.exq\(1.0\)\)`: AttributeError.*exq"
    ):
        launch(misspelt, (1,), torch.zeros(1))


@triton.jit
def breaks(x, n):
    for i in range(n):
        if i > 3:
            break
        tl.store(x + i, 1.0)


SCALE = 2.0


@triton.jit
def reads_a_global(x):
    tl.store(x, SCALE)


def plain(x):
    return x + 1


@triton.jit
def calls_plain_python(x):
    tl.store(x, plain(tl.load(x)))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (breaks, r"kernel `breaks` line \d+ `break`: SyntaxError: .*`break`"),
        (reads_a_global, r"line \d+ `tl.store\(x, SCALE\)`: NameError: .*global `SCALE`"),
        (calls_plain_python, r"NameError: .*global `plain`"),
    ],
)
def test_what_the_compiler_would_refuse_is_refused(kernel, message):
    with pytest.raises(Exception, match=message):
        launch(kernel, (1,), torch.zeros(4), **({"n": 4} if kernel is breaks else {}))


def test_unknown_launch_arguments_are_refused_and_options_are_not():
    x = torch.ones(64)
    launch(add, (1,), x, x, x, 64, BLOCK=64, num_warps=8, num_stages=2)
    with pytest.raises(Exception, match="kernel `add` has no parameter `BLOCKS`"):
        launch(add, (1,), x, x, x, 64, BLOCK=64, BLOCKS=2)


def test_skipped_kernels_are_counted_but_do_not_run():
    x, out = torch.ones(128), torch.zeros(128)
    site = launch(add, (1,), x, x, out, 128, BLOCK=128).site
    out.zero_()
    row = launch(add, (1,), x, x, out, 128, skip={site}, BLOCK=128)
    assert (row.calls, row.programs, row.bytes_total, out.sum().item()) == (1, 0, 0, 0)


def test_an_empty_grid_is_recorded_without_programs():
    row = launch(add, (0,), torch.ones(1), torch.ones(1), torch.ones(1), 1, BLOCK=128)
    assert (row.calls, row.programs, row.tensors) == (1, 0, [])


def test_more_work_than_the_budget_is_refused():
    x = torch.ones(4096)
    with pytest.raises(RuntimeError, match=r"kernel `add` line .*simulated work"):
        launch(add, (4096,), x, x, x, 4096, budget=20_000, BLOCK=1)


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def centre(x, mask, n):
    return tl.where(mask, x - tl.sum(tl.where(mask, x, 0.0), axis=0) / n, 0.0)


@triton.jit
def row_norm(x, out, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    mask = i < n
    value = centre(tl.load(x + row * n + i, mask=mask, other=0.0), mask, n)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / n + 1e-5)
    tl.store(out + row * n + i, gelu(value * scale) + libdevice.tanh(value), mask=mask)


def test_nested_helpers_reductions_and_libdevice():
    x = torch.randn(37, 50)
    out = torch.empty_like(x)
    row = launch(row_norm, (37,), x, out, 50, BLOCK=64)
    centred = x - x.mean(1, keepdim=True)
    expected = torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (50,))) + centred.tanh()
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    assert row.name == "row_norm"


@triton.jit
def running(x, positions, sums, peaks, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    peak, index = tl.max(value, axis=0, return_indices=True)
    tl.store(positions + row, index)
    tl.store(peaks + row, peak)
    tl.store(sums + row * n + i, tl.cumsum(tl.where(i < n, value, 0.0), axis=0), mask=i < n)


def test_argmax_and_scan():
    x = torch.randn(9, 21)
    positions, peaks, sums = torch.empty(9, dtype=torch.int32), torch.empty(9), torch.empty(9, 21)
    launch(running, (9,), x, positions, sums, peaks, 21, BLOCK=32)
    assert torch.equal(positions.long(), x.argmax(1))
    assert torch.equal(peaks, x.amax(1))
    torch.testing.assert_close(sums, x.cumsum(1))


@triton.jit
def welford(mean_a, m2_a, weight_a, mean_b, m2_b, weight_b):
    weight = weight_a + weight_b
    delta = mean_b - mean_a
    share = tl.where(weight == 0.0, 0.0, weight_b / weight)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * weight_a * share, weight


@triton.jit
def variance(x, out, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + i, mask=i < n, other=0.0)
    _, m2, weight = tl.reduce((value, tl.zeros((BLOCK,), tl.float32), tl.where(i < n, 1.0, 0.0)), 0, welford)
    tl.store(out + row, m2 / weight)


def test_any_associative_function_reduces():
    x, out = torch.randn(5, 23), torch.empty(5)
    launch(variance, (5,), x, out, 23, BLOCK=32)
    torch.testing.assert_close(out, x.var(1, unbiased=False))


@triton.jit
def block_copy(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_block_ptr(x, (M, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    target = tl.make_block_ptr(out, (M, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    for _ in range(0, N, BN):
        tl.store(target, tl.load(source, boundary_check=(0, 1)), boundary_check=(0, 1))
        source, target = tl.advance(source, (0, BN)), tl.advance(target, (0, BN))


def test_block_pointers():
    x = torch.randn(30, 45)
    out = torch.empty_like(x)
    row = launch(block_copy, (4,), x, out, 30, 45, BM=8, BN=16)
    assert torch.equal(out, x)
    assert row.bytes_unique == 2 * 30 * 45 * 4
