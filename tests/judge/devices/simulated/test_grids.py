"""What a dry run of a submission's host code adds to the trace of its small run."""

import dataclasses
import time

import pytest

from drkernel.judge.boundary.op_trace import Grid, OpTrace, Row, Traffic
from drkernel.judge.devices.simulated import loop_free
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.devices.simulated.grids import joined, without_masked_lanes
from drkernel.judge.devices.simulated.rescale import Scale
from drkernel.judge.devices.simulated.roofline import estimate_times
from tests.judge.devices.simulated import test_roofline

DEVICE = dataclasses.replace(GPUS["H200"], start_us=0.0)
SCALE = Scale(64.0, numel={1000: 64.0, 10**6: 64.0}, called={"add": 64})


def kernel(calls, name="step", programs=1):
    return Row(name, name, True, calls, programs * calls, tensors=[Traffic(1000, 4000, 4000)])


def operator(calls, name="addcmul"):
    return Row(name, name, False, calls, tensors=[Traffic(1000, 4000, 4000)])


def price(trace):
    return sum(row.microseconds for row in estimate_times(trace, DEVICE, SCALE))


@pytest.mark.parametrize("row", [kernel, operator])
def test_calls_that_a_dry_run_leaves_out_grow_as_the_data_do(row):
    small = OpTrace([row(16)])
    told = lambda *rows: price(joined(small, OpTrace(list(rows)), False))
    assert told() == told(row(15)) == told(row(1024)) == price(small) > 30 * told(row(16))
    assert told(row(2048)) > 1.5 * told(row(1024))


def test_operators_that_the_reference_calls_as_often_grow_as_its_own():
    assert price(OpTrace([operator(64, "add")])) == pytest.approx(2 * price(OpTrace([operator(32, "add")])), rel=0.01)
    assert price(OpTrace([operator(65, "add")])) > 30 * price(OpTrace([operator(64, "add")]))


def test_what_only_the_full_size_has_is_priced():
    small = OpTrace([kernel(1)])
    told = lambda *rows: price(joined(small, OpTrace([kernel(1), *rows]), False))
    assert told(kernel(1000, "other")) > 1000 * GPUS["H200"].kernel_us
    assert told(kernel(1000, "other", programs=10**6)) > 2 * told(kernel(1000, "other"))
    assert told(Row("tanh", "tanh", False, 1, tensors=[Traffic(10**9, 4 * 10**9, 4 * 10**9)])) > 800


def test_an_operator_has_the_dearer_price_of_both_runs():
    of = lambda size: OpTrace([Row("tanh", "tanh", False, 1, tensors=[Traffic(size, 4 * size, 4 * size)])])
    both = price(joined(of(10**7), of(10**7), False))
    assert both == price(of(10**7)) == pytest.approx(price(joined(of(10**6), of(64 * 10**7), False)), rel=0.01)


def test_no_more_programs_work_than_the_grid_has():
    row = Row("k", "k", True, 1, 8, tensors=[Traffic(10**6, 4 * 10**6, 4 * 10**6)], accesses=10**4)
    row.grids = [Grid(8, 10**6, True)]
    of = lambda programs: price(joined(OpTrace([row]), OpTrace([kernel(1, "k", programs)]), False))
    assert of(137) > 3 * of(1584) == 3 * of(10**6) == 3 * price(OpTrace([row]))


def parts(**fields):
    """128 programs, of which each leaves one number: more programs, or the same with longer loops, at full size."""
    row = Row("k", "k", True, 1, 128, tensors=[Traffic(10**4, 4 * 10**4, 4 * 10**4), Traffic(128, 512, 512, True)])
    row.grids, row.accesses, row.block = [Grid(128, 128, False)], 512, 1024
    return dataclasses.replace(row, **fields)


def price_of_parts(row, moved, accesses=0):
    told = dataclasses.replace(kernel(1, "k", 1024), moved=moved, accesses=accesses, tensors=[Traffic(10**9, 0, 0)])
    scale = Scale(10.0**4, numel={10**4: 10.0**4})
    return sum(t.microseconds for t in estimate_times(joined(OpTrace([row]), OpTrace([told]), False), DEVICE, scale))


def test_a_grid_is_believed_where_its_programs_move_all_data():
    untold, of_all = price_of_parts(parts(), 0.0), price_of_parts(parts(), 4e8)
    assert untold == price_of_parts(parts(), 1e8) > 5 * of_all
    assert of_all == pytest.approx(1e6 * 4e8 / DEVICE.bandwidth, rel=0.15)
    assert untold > price_of_parts(parts(), 4e8, accesses=5 * 10**6) > 3 * of_all


@pytest.mark.parametrize(
    "fields",
    [
        {"grids": [Grid(128, 128, False, idle=64)]},
        {"grids": [Grid(128, 128, False, share=0.5)]},
        {"grids": [Grid(1, 128, True)], "programs": 1},
        {"flops": 1e9, "tile": 256},
    ],
)
def test_no_grid_is_believed_of_uneven_programs_or_products(fields):
    assert price_of_parts(parts(**fields), 4e8) == price_of_parts(parts(**fields), 0.0)


def test_a_grid_is_believed_of_a_kernel_whose_programs_do_the_same_steps_though_one_did_all_of_the_small_run():
    alone = parts(site="k:1", grids=[Grid(1, 128, True)], programs=1)
    told = {"moved": 4e8, "accesses": 1024 * 512, "tensors": [Traffic(10**9, 0, 0)]}
    scale = Scale(10.0**4, numel={10**4: 10.0**4})

    def of(**fields):
        full = dataclasses.replace(kernel(1, "k:1", 1024), **(told | fields))
        trace = joined(OpTrace([alone]), OpTrace([full]), False, steps={"k"}, alike={"k"})
        return sum(time.microseconds for time in estimate_times(trace, DEVICE, scale))

    assert of() == pytest.approx(1e6 * 4e8 / DEVICE.bandwidth, rel=0.15)
    assert of(moved=1e8) > 5 * of() < price_of_parts(alone, 4e8) / 5
    assert of(programs=10**6, accesses=512 * 10**6) > 10**6 * DEVICE.program_ns / 1000, "all programs of the grid start"


def test_programs_of_a_loop_of_launches_grow_with_the_loop_once():
    row = kernel(16, programs=100)
    row.grids = [Grid(100, 1600, False, 16)]
    scale = Scale(64.0, numel={1000: 64.0, 1600: 64.0})
    of = lambda full: sum(t.microseconds for t in estimate_times(joined(OpTrace([row]), full, False), DEVICE, scale))
    launches = 1024 * GPUS["H200"].kernel_us
    programs = 1024 * 100 * GPUS["H200"].program_ns / 1000
    assert of(OpTrace([kernel(1024, programs=100)])) == pytest.approx(launches + programs, rel=0.1)


LOOP_FREE = """
@triton.jit
def gate(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.sigmoid(tl.load(x + i, mask=i < n)), mask=i < n)

@triton.jit
def abs(x):
    return x

def forward(x, out):
    gate[(4,)](x, out, 1000, BLOCK=256)
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.store(", "for j in range(0, n, BLOCK): tl.store("),
        ("tl.store(", "for j in range(4): tl.store("),
        ("tl.sigmoid(tl.load(", "sum([tl.load(x + j) for j in range(4)]) + tl.sigmoid(tl.load("),
        ("tl.store(out", "helper(out"),
        ("tl.sigmoid(tl.load", "abs(tl.load"),
        ("BLOCK=256", "BLOCK=size(1000)"),
        ("gate[(4,)]", "(gate if n else gate)[(4,)]"),
        ("@triton.jit", "@triton.autotune(CONFIGS, key=[])\n@triton.jit"),
    ],
)
def test_a_kernel_of_which_one_program_may_do_more_at_full_size_is_not_free_of_loops(old, new):
    assert loop_free.kernels(LOOP_FREE) == {"gate"}
    assert loop_free.kernels(LOOP_FREE.replace(old, new)) == frozenset()


@pytest.mark.parametrize("line", ["from a import load as min", "import a as tl", "class tl: pass", "tl = min"])
def test_a_call_to_a_name_that_the_source_binds_may_go_round(line: str):
    least = LOOP_FREE.replace("tl.sigmoid(tl.load", "min(1.0, tl.load")
    assert loop_free.kernels(f"import triton.language as tl\n{least}") == {"gate"}
    assert not loop_free.kernels(f"{line}\n{least}")


@pytest.mark.parametrize("numbers", ["4", "1, 2 * 8", "16 // 2"])
def test_a_loop_over_numbers_that_are_written_there_may_read(numbers):
    looped = "a = 0.0\n    for j in range(NUMBERS): a += tl.load(x + i + j, mask=i < n)\n    tl.store(".replace(
        "NUMBERS", numbers
    )
    assert loop_free.kernels(LOOP_FREE.replace("tl.store(", looped)) == {"gate"}
    assert not loop_free.kernels(LOOP_FREE.replace("tl.store(", looped.replace(numbers, "n")))


@pytest.mark.parametrize("numbers", ["4", "BLOCK", "1, BLOCK // 2"])
def test_such_a_loop_may_store_where_the_grid_is_known(numbers):
    looped = LOOP_FREE.replace("tl.store(", f"for j in tl.static_range({numbers}): tl.store(")
    assert loop_free.kernels(looped, several=True) == {"gate"} != loop_free.kernels(looped)
    for old, new in [(f"({numbers})", "(n)"), ("BLOCK=256", "BLOCK=size(1000)")]:
        assert not loop_free.kernels(looped.replace(old, new), several=True)
    if "BLOCK" in numbers:
        assert not loop_free.kernels(looped.replace("i = tl", "BLOCK = n; i = tl"), several=True)


def test_a_constant_that_conditions_alone_read_makes_no_loop():
    source = LOOP_FREE.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, GATED: tl.constexpr")
    source = source.replace("BLOCK=256", "BLOCK=256, GATED=n > 1").replace("tl.store(", "if GATED: tl.store(")
    assert loop_free.kernels(source) == {"gate"}
    assert not loop_free.kernels(source.replace("out + i,", "out + i + GATED,"))


def test_where_the_host_reads_numbers_no_grid_of_so_few_programs_is_known():
    read = lambda *rows: OpTrace([*rows, Row("bincount", "bincount", False, 1)])
    told = lambda programs: joined(read(kernel(1, programs=4)), read(kernel(1, programs=programs)), False).rows[0]
    assert [told(programs).full_grid for programs in (1, 4, 5)] == [0.0, 0.0, 5.0]


def test_of_a_kernel_without_a_loop_there_are_more_programs_unless_one_is_known():
    row = Row("k", "k:3", True, 1, 1, tensors=[Traffic(10**6, 4 * 10**6, 4 * 10**6)], block=256)
    row.grids, guessed = [Grid(1, 10**6, True)], Row("bincount", "bincount", False, 1)
    of = lambda *names: price(joined(OpTrace([row, guessed]), OpTrace([kernel(1, "k:3"), guessed]), False, names))
    assert of() > 20 * of("k")


def test_many_functions_are_looked_at_once():
    source = LOOP_FREE + "".join(f"def f{i}(x): return x\n" for i in range(3000))
    begun = time.process_time()
    assert loop_free.kernels(source) == {"gate"}
    assert time.process_time() - begun < 5


def test_one_program_stays_one_unless_the_kernel_has_no_loop():
    row = Row("k", "k:3", True, 1, 1, tensors=[Traffic(10**6, 4 * 10**6, 4 * 10**6)], block=256)
    row.grids = [Grid(1, 10**6, True)]
    of = lambda programs, *names: price(joined(OpTrace([row]), OpTrace([kernel(1, "k:3", programs)]), False, names))
    assert of(1024) == of(1, "k") == price(OpTrace([row])) > 20 * of(1024, "k")


def test_one_program_that_leaves_a_part_of_a_sum_stands_for_as_many_as_read_all():
    row = Row("k", "k:3", True, 1, 1, tensors=[Traffic(4000, 16000, 16000), Traffic(1, 4, 4, True)], block=4096)
    row.grids, row.accesses = [Grid(1, 1, False)], 2
    scale = Scale(2.0**16, numel={4000: 2.0**16})
    dry = lambda programs: joined(OpTrace([row]), OpTrace([kernel(1, "k:3", programs)]), False, ["k"])
    of = lambda programs: sum(t.microseconds for t in estimate_times(dry(programs), DEVICE, scale))
    assert of(64000) < 400 < 20 * of(64000) < of(1)


def test_kernels_that_take_turns_are_one_loop_where_nothing_is_known():
    turns = [kernel(1, f"step{i}") for i in range(16)]
    assert price(OpTrace(turns)) == pytest.approx(price(OpTrace([kernel(16)])), rel=0.05)
    assert price(joined(OpTrace(turns), OpTrace(turns), False)) < price(OpTrace(turns)) / 15
    assert price(OpTrace(turns[:4])) == pytest.approx(4 * price(OpTrace(turns[:1])), rel=0.01)


def test_of_the_ways_in_which_a_grid_may_grow_the_dry_run_tells_which():
    """64 programs, one for each row of 4 batches with 16 rows of 16: as many as a square has places."""
    square, rows = 64.0**2, 4 * 64.0
    row = Row("k", "k", True, 1, 256, tensors=[Traffic(4096, 16384, 16384)], block=16)
    row.grids = [Grid(256, 4096, False)]
    scale = Scale(rows * 64, numel={4096: rows * 64}, extents={256: square, 16: 64.0}, ways={256: {square, rows}})
    of = lambda factor: sum(
        one.microseconds
        for one in estimate_times(
            joined(OpTrace([row]), OpTrace([kernel(1, "k", int(256 * factor))]), False), DEVICE, scale
        )
    )
    assert of(rows) < 0.3 * of(square) == 0.3 * of(2 * square) and of(0.5 * rows) >= of(square)


def test_a_workspace_grows_no_further_than_the_largest_tensor_of_the_dry_run():
    row = Row("k", "k", True, 1, 16, tensors=[Traffic(8192, 32768, 32768), Traffic(128, 512, 512, True)], block=64)
    row.grids = [Grid(16, 128, True)]
    scale = Scale(2048.0, numel={128: 8.0})
    gpu = dataclasses.replace(DEVICE, kernel_us=0.0)

    def of(*sizes, programs=16):
        full = OpTrace([Row("k", "k", True, 1, programs, tensors=[Traffic(size, 0, 0) for size in sizes])])
        return sum(one.microseconds for one in estimate_times(joined(OpTrace([row]), full, False), gpu, scale))

    assert of(2**16, 2**10) < 0.1 * of() == 0.1 * of(2**30, 2**10)
    assert of(2**10) == of(8192), "what the reference has grows as it does there, and nothing shrinks"
    assert of(64) == of(1) == of(), "who gives a kernel less than the reference has there is not believed"
    assert of(64, programs=16 * 2048) >= 0.5 * of(programs=16 * 2048), "more programs have more to go through"


def test_lanes_count_as_masked_where_they_are_not_at_full_size():
    small = Row("k", "k", True, 1, 8, arithmetic=100.0, dense_arithmetic=1600.0, flops=50.0, dense_flops=3200.0)
    of = lambda used, filled=1.0: without_masked_lanes(
        small, Row("k", "k", True, arithmetic=used, dense_arithmetic=1.0, flops=filled, dense_flops=1.0)
    )
    assert of(1.0) == small == without_masked_lanes(small, None) == of(0.0, 0.0)
    assert (of(0.5).arithmetic, of(1 / 16).arithmetic, of(1 / 64).arithmetic) == (200, 1600, 1600)
    assert (of(1.0, 0.5).flops, of(1.0, 1 / 64).flops) == (100, 3200)
    full = Row("k", "k", True, 1, 8, arithmetic=1.0, dense_arithmetic=16.0)
    assert joined(OpTrace([small]), OpTrace([full]), False).rows[0].arithmetic == 1600


def test_of_several_kernels_of_one_line_each_has_its_own_work():
    """A function that makes kernels: one of them goes through the data, and the last one has a single program."""
    large = lambda name: Row(name, name, True, 1, 64, arithmetic=1e6, tensors=[Traffic(1000, 4000, 4000)])
    tiny = lambda name: kernel(1, name)
    grown = dataclasses.replace(large("k"), programs=64 * 64, arithmetic=1e14)
    full = lambda name: [dataclasses.replace(grown, name=name, site=name), tiny("b" if name == "a" else name)]
    apart = joined(OpTrace([large("a"), tiny("b")]), OpTrace(full("a")), False)
    alike = joined(OpTrace([large("k"), tiny("k")]), OpTrace(full("k")), False)
    assert price(alike) == pytest.approx(price(apart), rel=0.01)
    other_order = joined(OpTrace([large("k"), tiny("k")]), OpTrace(full("k")[::-1]), False)
    fewer = joined(OpTrace([large("k"), large("k"), tiny("k")]), OpTrace(full("k")), False)
    assert price(other_order) > 0.9 * price(apart) and price(fewer) > 0.9 * price(apart)


def test_programs_of_full_size_that_do_far_more_than_the_data_grow_are_believed():
    told = lambda **fields: test_roofline.total(test_roofline.kernel(arithmetic=1e9, **fields))
    assert told(full_arithmetic=2e9) == told()
    assert told(full_arithmetic=1e14) == pytest.approx(1e6 * 1e14 / GPUS["H200"].vector_ops, rel=0.2)
    longer, addresses = (told(flops=1e9, math="half", full_flops=n, full_arithmetic=n / 5) for n in (1e14, 1e9))
    assert longer > 100 * told(flops=1e9, math="half") == 100 * addresses


def test_a_copy_to_the_host_grows_no_further_than_the_largest_of_the_dry_run():
    copy = lambda numel: OpTrace([Row("_local_scalar_dense", "_", False, 1, tensors=[Traffic(numel, 8, 8)])])
    copies = lambda trace: max(row.calls for row in estimate_times(trace, DEVICE, SCALE))
    assert copies(joined(copy(4), OpTrace(), False)) == 64
    assert copies(joined(copy(4), copy(8), False)) == 2
    assert copies(joined(copy(1000), copy(8), False)) == 64, "as the reference's tensor of this size"
