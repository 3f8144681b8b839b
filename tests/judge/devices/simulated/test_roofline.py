"""Modelled times: from the small run to the full size, and what makes a kernel fast or slow."""

import dataclasses

import pytest
import torch
import triton
import triton.language as tl

from drkernel.judge.boundary.op_trace import Grid, OpTrace, Row, Traffic
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.devices.simulated.programs import grown_grid
from drkernel.judge.devices.simulated.rescale import Scale, scale_of
from drkernel.judge.devices.simulated.roofline import estimate_times, for_precision, min_time_us
from drkernel.judge.untrusted.simulated.device import record
from drkernel.tasks.module import Reference
from drkernel.types import Task

H200 = GPUS["H200"]

CHAIN = Task(
    id="chain",
    source="""
import torch
from torch import nn
ROWS, COLUMNS = 16384, 4096
class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(columns))
    def forward(self, x):
        return torch.relu(torch.tanh(x + self.bias) * 0.5)
def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]
def get_init_inputs():
    return [COLUMNS]
""",
    small={"ROWS": 64, "COLUMNS": 128},
)


@triton.jit
def fused(x, bias, out, columns, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n) + tl.load(bias + i % columns, mask=i < n)
    value = 2 * tl.sigmoid(2 * value) - 1
    tl.store(out + i, tl.maximum(value * 0.5, 0.0), mask=i < n)


def total(trace, scale=None, gpu=H200):
    return sum(row.microseconds for row in estimate_times(trace, gpu, scale or Scale()))


def reference_run(task):
    reference = Reference(task, task.small)
    model, inputs = reference.model(0), reference.inputs(0)
    with torch.no_grad(), record() as trace:
        model(*inputs)
    return model, inputs, trace


def test_eager_products_have_the_arithmetic_that_the_precision_allows_and_kernels_their_own():
    product = Row("mm", "mm", False, calls=1, flops=1e12, output_numel=2**24)
    eager = {name: total(OpTrace([product]), gpu=for_precision(H200, name)) for name in ("ieee", "tf32", "low")}
    assert eager["ieee"] == total(OpTrace([product])) and eager["tf32"] == eager["low"]
    assert 6 < eager["ieee"] / eager["tf32"] < 8
    kernel = dataclasses.replace(product, triton=True, programs=4096)
    assert total(OpTrace([kernel]), gpu=for_precision(H200, "tf32")) == total(OpTrace([kernel]))


def test_tensors_scale_by_their_own_factor():
    scale = scale_of(CHAIN)
    assert scale.of_tensor(64 * 128) == 16384 * 4096 / (64 * 128)
    assert scale.of_tensor(128) == 32
    assert scale.of_tensor(1) == 1


def test_fusing_four_operators_gains_what_it_gains_on_a_gpu():
    model, (x,), eager = reference_run(CHAIN)
    out = torch.empty_like(x)
    with record() as trace:
        fused[(triton.cdiv(x.numel(), 1024),)](x, model.bias, out, 128, x.numel(), BLOCK=1024)
    scale = scale_of(CHAIN)
    assert total(eager, scale) == pytest.approx(577, rel=0.05)  # microseconds measured on an H200
    assert 2.5 < total(eager, scale) / total(trace, scale) < 5


def test_a_task_without_small_constants_uses_the_judges():
    task = dataclasses.replace(CHAIN, small=None)
    assert scale_of(task) == Scale()
    assert scale_of(task, {"ROWS": 16384, "COLUMNS": 128}).of_tensor(16384 * 128) == 32


def test_products_scale_by_their_flops():
    source = """
import torch
from torch import nn
N = 4096
class Model(nn.Module):
    def forward(self, a, b):
        return a @ b
def get_inputs():
    return [torch.rand(N, N), torch.rand(N, N)]
def get_init_inputs():
    return []
"""
    task = Task(id="mm", source=source, small={"N": 64})
    _, _, trace = reference_run(task)
    scale = scale_of(task)
    assert scale.of_products(trace.rows[0]) == 64**3
    assert total(trace, scale) == pytest.approx(2 * 4096**3 / H200.flops["fp32"] * 1e6, rel=0.1)


def test_a_reference_whose_shapes_depend_on_data_scales_by_its_inputs():
    source = CHAIN.source.replace("x + self.bias", "x[x[:, 0].nonzero().sum().item() :] + self.bias")
    scale = scale_of(dataclasses.replace(CHAIN, source=source))
    assert scale.bytes == scale.flops == 16384 * 4096 / (64 * 128)


@triton.jit
def double_rows(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(out + row * columns + i, 2 * tl.load(x + row * columns + i, mask=i < columns), mask=i < columns)


def test_a_program_per_row_stays_a_program_per_row():
    x = torch.randn(64, 128)
    out = torch.empty_like(x)
    with record() as whole:
        double_rows[(64,)](x, out, 128, BLOCK=128)
    with record() as narrow:
        double_rows[(64,)](x, out, 128, BLOCK=16)
    scale = scale_of(CHAIN)
    assert total(whole, scale) == pytest.approx(130, rel=0.1)
    assert total(narrow, scale) > 1.5 * total(whole, scale)


def test_a_small_tensor_in_one_block_becomes_many_blocks_but_a_loop_stays_one_program():
    x = torch.randn(64, 128)
    out = torch.empty_like(x)
    with record() as block:
        double_rows[(1,)](x, out, x.numel(), BLOCK=8192)
    with record() as loop:
        double_rows[(1,)](x, out, x.numel(), BLOCK=1024)
    scale = scale_of(CHAIN)
    assert total(block, scale) == pytest.approx(130, rel=0.1)
    assert total(loop, scale) > 50 * total(block, scale)


def test_tiles_that_are_loaded_again_grow_like_the_products():
    tensors = [Traffic(2**16, 2**18, 8 * 2**18), Traffic(2**16, 2**18, 2**18, True)]
    trace = OpTrace([Row("mm", "mm:1", True, 1, 64, 2.0 * 256**3, 0, 2**16, "half", 1024, 1024, tensors)])
    scale = Scale(bytes=256, flops=4096, numel={2**16: 256})
    assert total(trace, scale) == pytest.approx(1015, rel=0.25)  # 4096^3 in 32x32 tiles on an H200


def kernel(programs=1000, unique=10**9, total=None, **fields):
    return OpTrace(
        [Row("k", "k:1", True, 1, programs, tensors=[Traffic(unique // 4, unique, total or unique)], **fields)]
    )


def test_what_slows_a_kernel_down():
    base = total(kernel())
    assert base == pytest.approx(1e9 / H200.bandwidth * 1e6, rel=0.05)
    assert total(kernel(programs=1)) > 20 * base  # one SM
    assert total(kernel(total=8 * 10**9)) > 3 * base  # a sector per element
    assert total(kernel(flops=1e12, math="fp32")) > 5 * total(kernel(flops=1e12, math="half"))
    assert total(kernel(programs=30_000_000)) > 5 * base  # tiny blocks
    assert total(kernel(), gpu=GPUS["A100"]) > 2 * base


def test_what_a_program_loads_again_soon_comes_from_the_l1_cache():
    again = {"unique": 10**9, "total": 4 * 10**9, "reused": 3e9}
    soon, late = (total(kernel(**again, reach=3e9 * moved)) for moved in (1e3, 1e7))
    assert soon < 0.5 * late
    assert late == pytest.approx(total(kernel(total=4 * 10**9)), rel=0.01)


def test_blocks_that_a_full_size_row_fills_badly_compute_for_nothing():
    scale = Scale(bytes=2048, numel={64 * 96: 2048, 64: 64}, extents={64: 64, 96: 32})  # rows of 96 become rows of 3072
    tensors = [Traffic(64 * 96, 4 * 64 * 96, 4 * 64 * 96), Traffic(64, 256, 256, True)]
    grown, fixed = (
        OpTrace([Row("k", "k:1", True, 1, 64, arithmetic=1e7, block=block, tensors=tensors)]) for block in (128, 1024)
    )
    assert total(grown, scale) == pytest.approx(4096 / 3072 * total(fixed, scale), rel=0.02)


def test_arithmetic_hides_behind_memory_unless_few_programs_are_there_to_overlap():
    light, heavy = ({"arithmetic": share * total(kernel()) * 1e-6 * H200.vector_ops} for share in (0.3, 0.9))
    many = 10_000
    assert total(kernel(many, **light)) == pytest.approx(total(kernel(many)), rel=0.02)
    assert total(kernel(many, **heavy)) < 1.05 * total(kernel(many))
    assert total(kernel(many, **heavy, block=4096)) > 1.2 * total(kernel(many))


def test_operators_that_address_each_element_are_slower():
    tensors = [Traffic(10**8, 4 * 10**8, 4 * 10**8), Traffic(10**8, 4 * 10**8, 4 * 10**8, True)]
    plain, single = (
        OpTrace([Row("mul", "mul", False, 1, accesses=accesses, output_numel=10**8, tensors=tensors)])
        for accesses in (0, 10**8)
    )
    assert total(single) == pytest.approx(1.42 * total(plain), rel=0.05)


def test_small_work_costs_its_kernels():
    ten = OpTrace([Row("add", "add", False, 10, tensors=[Traffic(100, 800, 800)])])
    assert total(ten) == pytest.approx(10 * H200.kernel_us, rel=0.2)


def test_the_profile_is_sorted_and_says_who_launched():
    trace = OpTrace([Row("add", "add", False, 1), *kernel().rows])
    profile = estimate_times(trace, H200, Scale())
    assert [(row.name, row.triton) for row in profile] == [("k:1", True), ("add", False)]


def test_no_kernel_is_faster_than_the_least_time():
    least = min_time_us(H200, Scale(), 5 * 10**8, 5 * 10**8)
    assert 0.8 * total(kernel()) < least < total(kernel())


@triton.jit
def add_rows(x, y, out, columns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + i
    mask = i < columns
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


def test_a_program_that_reads_two_tensors_of_one_shape_in_one_block_does_not_loop():
    x, y, out = (torch.randn(64, 128) for _ in range(3))
    with record() as both:
        add_rows[(64,)](x, y, out, 128, BLOCK=128)
    with record() as one:
        double_rows[(64,)](x, out, 128, BLOCK=128)
    assert [grid.loops for grid in both.rows[0].grids] == [False]
    assert total(both, scale_of(CHAIN)) == pytest.approx(1.5 * total(one, scale_of(CHAIN)), rel=0.1)
    with record() as loop:
        double_rows[(64,)](x, out, 128, BLOCK=16)
    assert [grid.loops for grid in loop.rows[0].grids] == [True]


def test_launches_on_tensors_of_two_sizes_grow_each_by_its_own_factor():
    sides = dataclasses.replace(
        CHAIN,
        source=CHAIN.source.replace("x + self.bias", "torch.nn.functional.max_pool1d(x, 2) + self.bias").replace(
            "torch.zeros(columns)", "torch.zeros(columns // 2)"
        ),
    )
    scale = scale_of(sides)
    large, small = torch.randn(64, 128), torch.randn(64, 64)

    def price(*tensors):
        with record() as trace:
            for x in tensors:
                double_rows[(x.numel() // 64,)](x, torch.empty_like(x), 64, BLOCK=64)
        return total(trace, scale)

    assert price(large, small) == pytest.approx(price(large) + price(small), rel=0.1)
    assert price(large, small, small) == pytest.approx(price(large) + 2 * price(small), rel=0.1)


def test_a_grid_of_blocks_that_equals_a_dimension_by_chance_grows_like_what_it_stores():
    """32 blocks of 256 elements, where one dimension is 32 and none is 256."""
    grid, scale = Grid(32, 8192, True), Scale(numel={8192: 392}, extents={32: 2.0})
    assert grown_grid(grid, 256, 0, scale) == (12544, 12544)
    rows_of_256 = dataclasses.replace(scale, extents={32: 2.0, 256: 196.0})
    assert grown_grid(grid, 256, 0, rows_of_256) == (64, 12544)


def test_a_full_grid_of_few_programs_leaves_the_other_multiprocessors_idle():
    scale = Scale(1000.0, numel={10**6: 1000.0})
    grids = [Grid(8, 10**6, True)]
    price = lambda **fields: total(kernel(programs=8, unique=4 * 10**6, grids=grids, **fields), scale)
    assert price(full_grid=2.0) == pytest.approx(total(kernel(programs=2, unique=4 * 10**9)), rel=0.01)
    assert price(full_grid=2.0) > 20 * price() == 20 * price(full_grid=132.0)


def test_a_full_grid_that_a_submission_states_makes_nothing_cheaper():
    scale = Scale(1000.0, numel={10**6: 1000.0})
    grids = [Grid(16000, 10**6, False)]
    price = lambda **fields: total(
        kernel(programs=16000, unique=4 * 10**6, block=64, accesses=32000, grids=grids, **fields), scale
    )
    assert all(price(full_grid=stated) >= price() for stated in (1.0, 64.0, 131.0, 10.0**9))


def test_launches_in_a_loop_count_as_often_as_the_full_size_has_them():
    scale = Scale(64.0, calls={"add": 64.0})
    price = lambda **fields: total(kernel(unique=4000, **fields), scale) - total(kernel(unique=4000), scale)
    assert price(full_calls=1024.0) == pytest.approx(1023 * H200.kernel_us, rel=0.3)
    assert price(full_calls=0.5) == 0
    operator = OpTrace([Row("add", "add", False, 16, tensors=[Traffic(1000, 4000, 4000)])])
    assert total(operator, scale) == pytest.approx(1024 * H200.kernel_us, rel=0.3)
    without_dry_run = OpTrace([dataclasses.replace(kernel(unique=4000).rows[0], calls=16)])
    assert total(without_dry_run, scale) == pytest.approx(1024 * H200.kernel_us, rel=0.3)
    assert total(without_dry_run, Scale(64.0)) == total(without_dry_run, scale)


@pytest.mark.slow
def test_a_reference_tells_how_often_its_operators_are_called():
    loop = Task(
        id="loop",
        source=CHAIN.source.replace(
            "return torch.relu(torch.tanh(x + self.bias) * 0.5)",
            "return torch.stack([torch.relu(x[i]) + self.bias for i in range(0, len(x), 32)])",
        ),
        small={"ROWS": 64, "COLUMNS": 128},
    )
    assert scale_of(loop).calls == {"relu": 256.0, "add": 256.0}
    assert not scale_of(CHAIN).calls


def test_programs_work_at_a_time_unless_they_are_idle_or_one_does_everything():
    scale = Scale(10.0, numel={10**6: 10.0})
    price = lambda **fields: total(
        kernel(programs=200, unique=4 * 10**6, grids=[Grid(200, 10**6, True, **fields)]), scale
    )
    assert price(share=1.0) == pytest.approx(total(kernel(programs=1, unique=4 * 10**7)), rel=0.01)
    assert price(idle=150) == price() < price(idle=199)
    assert price(idle=199) < 0.2 * price(share=1.0)


@triton.jit
def add_up(x, out, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(ROWS):
        total += tl.load(x + (tl.program_id(0) * ROWS + row) * columns + i)
    tl.atomic_add(out + i, total)


def test_programs_that_add_to_one_another_grow_with_what_they_read():
    x, out = torch.randn(64, 128), torch.zeros(128)
    with record() as trace:
        add_up[(8,)](x, out, 128, ROWS=8, BLOCK=128)
    (grid,) = trace.rows[0].grids
    assert (grid.programs, grid.stored, grid.idle, grid.uneven) == (8, 64 * 128, 0, (1.0, 1.0, 1.0))
    with record() as alone:
        double_rows[(64,)](x, torch.empty_like(x), 128, BLOCK=128)
    assert total(trace, scale_of(CHAIN)) < total(alone, scale_of(CHAIN))


def test_a_copy_to_the_host_costs_what_the_full_size_takes():
    copy = lambda numel: Row("_local_scalar_dense", "_", False, calls=9, tensors=[Traffic(numel, 4 * numel, 4 * numel)])
    scale = Scale(numel={64: 100.0})
    whole, single, none = (
        estimate_times(OpTrace([row]), H200, scale)[0]
        for row in (copy(64), copy(1), Row("_local_scalar_dense", "_", False, calls=9))
    )
    assert (whole.calls, single.calls, none.calls) == (900, 9, 9)
    assert whole.microseconds > 90 * single.microseconds


def test_programs_that_each_go_through_a_whole_row_take_longer_for_a_longer_one():
    rows, columns, block = 8, 256, 64
    size, programs = 4 * rows * columns, rows * columns // block
    moved = [Traffic(rows * columns, size, size * columns // block), Traffic(rows * columns, size, size, True)]
    ranks = Row("k", "k:1", True, 1, programs, arithmetic=1e9, block=block, tensors=moved)
    twice = dataclasses.replace(ranks, tensors=[Traffic(rows * columns, size, 2 * size), moved[1]], reused=size)
    at = lambda row, factor: (
        estimate_times(OpTrace([row]), H200, Scale(factor, numel={rows * columns: factor}, extents={columns: factor}))[
            0
        ].microseconds
    )
    assert 12 < at(ranks, 64.0) / at(ranks, 16.0) < 20, "as the square of the row"
    assert at(twice, 64.0) / at(twice, 16.0) < 5


def test_atomic_operations_at_one_address_wait_for_each_other():
    """An H200 took 1,841 us for 2^20 programs that each add to one number, 10 us where there are 65536 numbers."""
    adding = lambda number: total(kernel(programs=2**20, contention=number))
    assert adding(2**20) == pytest.approx(1841, rel=0.05)
    assert adding(16) == adding(0)
    scale = Scale(64.0, numel={10**6: 64.0})
    grown = lambda **fields: total(kernel(programs=128, unique=4000, contention=128, **fields), scale)
    assert grown(full_grid=2.0**20) == pytest.approx(1841, rel=0.05)


def test_a_program_that_reduces_again_and_again_waits_each_time():
    some, many = (total(kernel(64, 64_000, exchanges=64.0 * number)) for number in (2, 1000))
    assert some < 5 and many == pytest.approx(1000 * 0.06, rel=0.1)
    assert total(kernel(64, 64_000, exchanges=64.0 * 2, full_exchanges=64.0 * 1000, full_grid=64.0)) == many
    rows = [total(kernel(262_144, exchanges=262_144.0 * number)) for number in (0, 2)]
    assert rows[1] == pytest.approx(rows[0], rel=0.01)  # others load meanwhile


@pytest.mark.parametrize(("block", "warps", "spills"), [(16384, 8, False), (16384, 2, True), (65536, 16, True)])
def test_blocks_that_the_registers_of_their_warps_do_not_hold_spill(block, warps, spills):
    moved = [Traffic(2**26, 2**28, 2**28), Traffic(2**26, 2**28, 2**28, True)]

    def us(warps):
        row = Row("k", "k:1", True, calls=1, programs=4096, block=block, warps=warps, accesses=8192, tensors=moved)
        return estimate_times(OpTrace([row]), H200, Scale())[0].microseconds

    held = us(0) / (4 if block > 32768 else 1)
    assert us(warps) == pytest.approx(4 * held if spills else held, rel=0.05)
