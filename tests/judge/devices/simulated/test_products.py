"""Products by tl.dot: what the trace knows of their tiles, and the rates that an H200 was seen to have."""

import pytest
import torch
import triton
import triton.language as tl

from drkernel.judge.boundary.op_trace import Grid, OpTrace, Row
from drkernel.judge.devices.limits import LIMITS
from drkernel.judge.devices.simulated import floor
from drkernel.judge.devices.simulated.accesses import growth_of_accesses
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.devices.simulated.rescale import Scale
from drkernel.judge.devices.simulated.roofline import _dense, _dot_rate, estimate_times
from drkernel.judge.untrusted.simulated.device import record
from tests.judge.untrusted.simulated.test_interpreter import launch

MEASURED = {
    ("tf32x3", True, 128 * 64, 2048): 75,
    ("tf32x3", True, 64 * 64, 4096): 66,
    ("tf32x3", True, 64 * 64, 128): 31,
    ("tf32x3", False, 128 * 128, 8192): 65,
    ("tf32x3", False, 128 * 64, 2048): 54,
    ("tf32x3", False, 64 * 64, 4096): 36,
    ("tf32", True, 128 * 128, 1024): 265,
    ("tf32", True, 64 * 64, 4096): 155,
    ("tf32", False, 128 * 128, 1024): 80,
    ("tf32", False, 64 * 64, 4096): 48,
    ("fp32", False, 64 * 64, 4096): 43,
    ("fp32", True, 128 * 128, 1024): 22,
}
"""TFLOP/s of the form, whether factors lie along the inner dimension, the elements of a tile and the programs, as
benchmarks/product_rates.py saw them on an H200 (2026-11-27)."""


@pytest.mark.parametrize("known", MEASURED)
def test_rates_are_those_that_were_measured(known):
    math, k_major, tile, programs = known
    row = Row("k", "k:1", True, math=math, tile=tile, k_major=k_major)
    rate = _dot_rate(row, GPUS["H200"], Scale(1.0), programs)
    assert rate == pytest.approx(MEASURED[known] * 1e12, rel=0.25)


@triton.jit
def product(a, b, c, M, N, K, along_k, along_n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    q = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for t in range(0, K, BK):
        k = t + tl.arange(0, BK)
        x = tl.load(a + r * K + k[None, :], mask=(r < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * along_k + q * along_n, mask=(q < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="tf32x3")
    tl.store(c + r * N + q, acc, mask=(r < M) & (q < N))


@pytest.mark.parametrize("turned", [False, True])
def test_the_trace_knows_the_tile_and_how_factors_lie(turned):
    a, b, c = torch.randn(32, 64), torch.randn(64, 32), torch.empty(32, 32)
    along = (1, 64) if turned else (32, 1)
    row = launch(product, (1, 1), a, b.T.contiguous() if turned else b, c, 32, 32, 64, *along, BM=64, BN=32, BK=32)
    torch.testing.assert_close(c, a @ b, rtol=1e-5, atol=1e-4)
    assert (row.math, row.tile, row.k_major) == ("tf32x3", 64 * 32, turned)
    assert row.flops == 2 * 32 * 32 * 64 and row.dense_flops == 2 * row.flops


@triton.jit
def product_of_wrapped(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    q = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for t in range(0, K, BK):
        k = t + tl.arange(0, BK)
        x = tl.load(a + (r % M) * K + k[None, :], mask=k[None, :] < K, other=0.0)
        y = tl.load(b + k[:, None] * N + q % N, mask=k[:, None] < K, other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
    tl.store(c + r * N + q, acc, mask=(r < M) & (q < N))


def test_rows_that_are_loaded_again_to_fill_a_tile_are_no_data():
    a, b, c = torch.randn(40, 72), torch.randn(72, 8), torch.empty(40, 8)
    row = launch(product_of_wrapped, (2, 1), a, b, c, 40, 8, 72, BM=32, BN=64, BK=32)
    torch.testing.assert_close(c, a @ b, rtol=1e-5, atol=1e-4)
    assert row.dense_flops == 2 * 64 * 64 * 96
    assert row.flops == pytest.approx(2 * (32 + 32) * 8 * 72)  # the second program has 8 rows, and begins anew with 24


def test_a_tile_that_a_small_task_leaves_empty_is_not_loaded_more_often_at_full_size():
    half = Row("k", "k:1", True, flops=1e6, dense_flops=2e6)
    assert growth_of_accesses(half, 10.0, 1000.0, 1.0) == 500.0


def test_tiles_whose_numbers_were_made_smaller_have_their_size_at_full_size():
    known = {"math": "tf32x3", "k_major": True, "tile": 512, "grids": [Grid(1, 512, True)], "full_grid": 2048.0}
    rate = lambda **more: _dot_rate(
        Row("k", "k:1", True, **known, **more), GPUS["H200"], Scale(numel={512: 32768.0}), 2048
    )
    assert rate(is_smaller=True) == pytest.approx(75e12, rel=0.05)
    assert rate() < 30e12


def test_lanes_that_a_tile_leaves_empty_take_time_where_sums_do_not_grow():
    scale = Scale(flops=16.0, numel={512: 16.0})
    known = {"tile": 1024, "programs": 1, "dense_flops": 4e6, "grids": [Grid(1, 512, True)]}
    dense = lambda full_grid, products=16.0: _dense(
        Row("k", "k:1", True, calls=1, flops=1e6, full_grid=full_grid, full_calls=1.0, **known), scale, products
    )
    assert dense(16.0) == 16 * 4e6
    assert dense(4.0) == 0.0  # tiles are larger than they were
    assert dense(16.0, products=64.0) == 0.0


def test_a_convolution_of_few_channels_takes_longer_where_the_full_size_has_few():
    row, key = Row("convolution", "convolution", False, 1, flops=1e9, dense_flops=4e9, output_numel=10**6), 10**6

    def us(dense):
        scale = Scale(operators={("convolution", key, 1e9): 10.0}, dense={("convolution", key, 1e9): dense})
        return estimate_times(OpTrace([row]), GPUS["H200"], scale)[0].microseconds

    assert us(dense=10.0) == pytest.approx(4 * us(dense=2.5), rel=0.1)
    assert us(dense=2.5) == pytest.approx(1e10 / 30e12 * 1e6, rel=0.1)


def test_operators_of_one_name_that_make_as_much_are_told_apart_by_their_products():
    scale = Scale(operators={("convolution", 512, 100.0): 2.0, ("convolution", 512, 900.0): 16.0}, flops=9.0)
    row = lambda flops, numel=512, calls=1: Row("convolution", "c", False, calls, flops=flops, output_numel=numel)
    found = [scale.of_products(one) for one in (row(100.0), row(200.0, calls=2), row(900.0), row(300.0), row(1.0, 4))]
    assert found == [2.0, 2.0, 16.0, 16.0, 9.0]


def test_a_product_grows_as_one_of_another_name_that_is_as_large():
    scale = Scale(operators={("addmm", 512, 100.0): 2.0, ("bmm", 64, 900.0): 16.0}, flops=9.0)
    row = lambda flops, numel: Row("mm", "mm", False, 1, flops=flops, output_numel=numel)
    assert [scale.of_products(row(*one)) for one in ((100.0, 512), (900.0, 64), (900.0, 512))] == [2.0, 16.0, 9.0]


@triton.jit
def eight_bits(a, b, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = i[:, None] * BLOCK + i[None, :]
    tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at), out_dtype=tl.int32))


def test_products_of_eight_bits_take_half_as_long_as_those_of_16():
    a, out = torch.ones(32, 32, dtype=torch.int8), torch.empty(32, 32, dtype=torch.int32)
    with record() as trace:
        eight_bits[(1,)](a, a, out, BLOCK=32)
    assert trace.rows[0].math == "byte" and int(out[0, 0]) == 32
    for flops in (GPUS["H200"].flops, LIMITS["NVIDIA H200"].flops):
        assert flops["byte"] == pytest.approx(2 * flops["half"], rel=0.01)
    row = Row("_int_mm", "_int_mm", False, 1, flops=1e13, output_numel=2**26, math="byte")
    assert floor._rate(row, GPUS["H200"], "ieee") == GPUS["H200"].flops["byte"]
    assert sum(time.microseconds for time in estimate_times(OpTrace([row]), GPUS["H200"], Scale())) < 6700
