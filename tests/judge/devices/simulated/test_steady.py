"""Kernels that do as many steps whatever they load are believed what they access without data, and no others."""

import dataclasses

import pytest

from drkernel.judge.boundary.op_trace import Grid, OpTrace, Row, Traffic
from drkernel.judge.devices.simulated import steady
from drkernel.judge.devices.simulated.accesses import growth_of_products
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.devices.simulated.grids import joined
from drkernel.judge.devices.simulated.rescale import Scale
from drkernel.judge.devices.simulated.roofline import estimate_times

GATHER = """
import triton
import triton.language as tl

@triton.jit
def rows(x, places, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        if start >= 0:
            total += tl.load(x + tl.load(places) * n + start + i, mask=start + i < n, other=0.0)
    return total

@triton.jit
def gather(x, places, out, n, BLOCK: tl.constexpr):
    first = tl.program_id(0)
    last = tl.minimum(first + 1, n)
    for row in range(first, last):
        tl.store(out + row, tl.sum(rows(x, places + row, n, BLOCK), 0))
"""


def test_a_kernel_whose_loops_go_over_its_arguments_is_steady():
    assert steady.kernels(GATHER) == {"rows", "gather"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range(0, n, BLOCK)", "range(0, tl.load(places), BLOCK)"),
        ("range(0, n, BLOCK)", "range(0, tl.max(total, 0), BLOCK)"),
        ("if start >= 0:", "if tl.load(places) > 0:"),
        ("if start >= 0:", "while start < tl.load(places):"),
        ("last = tl.minimum(first + 1, n)", "last = first + tl.load(places)"),
        ("last = tl.minimum(first + 1, n)", "a, last = 1, first\\n    last += tl.load(places)"),
        ("rows(x, places + row, n, BLOCK)", "rows(x, places + row, tl.load(places), BLOCK)"),
        ("rows(x, places + row, n, BLOCK)", "rows(x, places + row, n=tl.load(places), BLOCK=BLOCK)"),
        ("rows(x, places + row, n, BLOCK)", "other.rows(x, places + row, n, BLOCK)"),
        ("rows(x, places + row, n, BLOCK)", "unknown(x, places + row, n, BLOCK)"),
        ("import triton\n", "import triton\nrange = lambda *numbers: numbers\n"),
        ("@triton.jit\ndef gather", "def rows(): pass\n@triton.jit\ndef gather"),
        ("import triton\n", "import triton\n)"),
    ],
)
def test_one_whose_steps_may_depend_on_what_it_loads_is_not(old, new):
    assert old in GATHER
    assert steady.kernels(GATHER.replace(old, new.replace("\\n", "\n"))) == frozenset()


SCALE = Scale(bytes=4096.0, numel={4096: 4096.0}, extents={64: 64.0})
TENSORS = [Traffic(4096, 16384, 16384), Traffic(4096, 16384, 16384, True)]
GRID = Grid(64, 4096, True)
TOLD = Row("k", "k:1", True, 1, 64, block=64, accesses=64 * 6, tensors=TENSORS, grids=[GRID])


def microseconds(**fields):
    known = {"full_grid": 4096.0, "full_accesses": 4096 * 6.0, "full_moved": 2 * 4096 * 16384.0, "steady": True}
    row = dataclasses.replace(TOLD, **(known | fields))
    return sum(time.microseconds for time in estimate_times(OpTrace([row]), GPUS["H200"], SCALE))


def test_what_programs_without_data_access_is_believed_of_a_steady_kernel_that_goes_through_the_data():
    assert microseconds() < 45
    as_the_data_grow = microseconds(full_accesses=0.0)
    assert as_the_data_grow > 90
    for fields in ({"steady": False}, {"full_moved": 4096.0}, {"full_accesses": 4096 * 5.0}, {"full_calls": 2.0}):
        assert microseconds(**fields) >= 0.99 * as_the_data_grow


def test_no_kernel_is_steady_where_the_host_reads_numbers_back():
    full = OpTrace([dataclasses.replace(TOLD, programs=4096)])
    assert joined(OpTrace([TOLD]), full, False, steps={"k"}).rows[0].steady
    read = Row("_local_scalar_dense", "_local_scalar_dense", False, 1)
    assert not joined(OpTrace([TOLD]), OpTrace([*full.rows, read]), False, steps={"k"}).rows[0].steady
    assert not joined(OpTrace([TOLD]), full, False).rows[0].steady


def test_a_steady_kernel_that_skips_masked_blocks_has_half_of_the_products_and_no_less():
    scale = Scale(flops=4096.0)
    row = dataclasses.replace(TOLD, flops=1e6, steady=True, full_moved=1e6)
    for told, expected in ((5e9, 5000), (3e9, 3000), (1e9, 2048)):
        assert growth_of_products(dataclasses.replace(row, full_flops=told), scale) == expected
        assert growth_of_products(dataclasses.replace(row, full_flops=told, steady=False), scale) >= 4096
        assert growth_of_products(dataclasses.replace(row, full_flops=told, full_moved=0.0), scale) >= 4096
