"""Kernels that do as many steps whatever they load are believed what they access without data, and no others."""

import dataclasses

import pytest

from drkernel.judge.boundary.op_trace import Grid, OpTrace, Row, Traffic
from drkernel.judge.devices.simulated import steady
from drkernel.judge.devices.simulated.accesses import growth_of_products, growth_of_shared
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


WINDOW = """
import triton
import triton.language as tl

@triton.jit
def window(x, out, n, P: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.zeros([BLOCK], tl.float32)
    for j in range(P):
        if j % 2 == 0:
            found += tl.load(x + i * P + j, mask=i < n, other=0.0)
    tl.store(out + i, found, mask=i < n)
"""


def test_all_programs_do_the_same_steps_where_places_in_the_grid_decide_addresses_and_masks_alone():
    assert steady.kernels(WINDOW, evenly=True) == {"window"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range(P)", "range(P if tl.program_id(0) == 0 else 1)"),
        ("range(P)", "range(tl.program_id(0), n, tl.num_programs(0))"),
        ("if j % 2 == 0:", "if j % 2 == 0 and pid == 0:"),
        ("tl.store(out", "if pid == 0:\n        return\n    tl.store(out"),
        ("tl.store(out", "if tl.max(found, 0) > 0:\n        return\n    tl.store(out"),
        ("range(P)", "range(tl.load(x))"),
    ],
)
def test_programs_differ_where_a_place_or_data_decide_what_is_done(old, new):
    assert old in WINDOW
    named = WINDOW.replace("    i =", "    pid = tl.program_id(0)\n    i =")
    assert steady.kernels(named, evenly=True) == {"window"}
    assert steady.kernels(named.replace(old, new.replace("\\n", "\n")), evenly=True) == frozenset()


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


def test_programs_that_all_do_the_same_steps_tell_of_all_though_some_move_less_than_others():
    few = {"full_moved": 4096.0, "even": True}
    assert microseconds(**few) == pytest.approx(microseconds(), rel=0.01)
    as_the_data_grow = microseconds(full_accesses=0.0)
    for fields in ({"full_accesses": 4096 * 5.0}, {"full_calls": 2.0}, {"full_accesses": 0.0}):
        assert microseconds(**few | fields) >= 0.99 * as_the_data_grow


def test_instructions_that_programs_without_data_do_not_have_are_taken_to_be_there():
    """Host code may ask for none of them at the published size."""
    chain = {"arithmetic": 64 * 4e6, "issued": 64 * 6e3, "blocks": 64 * 6.0}
    told = {"full_arithmetic": 4096 * 4e4, "full_issued": 4096 * 60.0, "full_blocks": 4096 * 6.0}
    as_the_data_grow = microseconds(**chain)
    assert as_the_data_grow > 1000
    assert microseconds(**chain | told) == as_the_data_grow
    assert microseconds(**chain | told | {"blocks": 64 * 600.0}) < 50
    of_many_blocks = {"full_issued": 4096 * 6e5, "full_blocks": 4096 * 600.0}
    assert microseconds(**chain | told | of_many_blocks) < 50


def test_of_such_programs_masked_lanes_count_as_they_are_executed_by_each():
    full = dataclasses.replace(TOLD, programs=4096, arithmetic=100.0, dense_arithmetic=8e6)
    told = lambda *alike: joined(OpTrace([TOLD]), OpTrace([full]), False, steps={"k"}, alike=alike).rows[0]
    assert told("k").full_arithmetic == 8e6 and told().full_arithmetic == 100.0


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


LAST = """
import triton
import triton.language as tl

@triton.jit
def add(x, parts, count, out, n, P, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(pid * BLOCK, n, P * BLOCK):
        total += tl.load(x + start + tl.arange(0, BLOCK))
    tl.store(parts + pid, tl.sum(total, 0))
    rounds = 1
    if tl.atomic_add(count, 1) == P - 1:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, BLOCK)), 0))
"""


def test_what_the_last_program_does_once_leaves_a_kernel_steady_though_not_strictly():
    assert steady.kernels(LAST) == {"add"} and not steady.kernels(LAST, strictly=True)
    assert not steady.kernels(
        LAST.replace("        tl.store(out", "        for k in range(P):\n            tl.store(out")
    )
    inside = LAST.replace("        total +=", "        if tl.load(x) > 0:\n            total *= 2\n        total +=")
    assert not steady.kernels(inside)


def test_a_number_of_rounds_that_a_branch_over_data_decides_is_data():
    more = LAST + "        rounds = 2\n    for k in range(rounds):\n        tl.store(out, 1.0)\n"
    assert not steady.kernels(more)


def test_programs_of_a_fixed_grid_that_tell_their_steps_take_the_time_of_these():
    """528 programs add up a tensor; each has a sum of its lanes to store, however long the tensor is."""
    tensors = [Traffic(2**14, 2**16, 2**16), Traffic(528, 2112, 16896, True)]
    row = Row("add", "add:1", True, 1, 528, arithmetic=2.2e6, dense_arithmetic=2.2e6, block=2048, accesses=1600,
              lanes=18e3, tensors=tensors, grids=[Grid(528, 2**14, False)])  # fmt: skip
    full = dataclasses.replace(row, arithmetic=73e6, accesses=9768, lanes=2.0**24, moved=2.0**26, tensors=[])
    known = joined(OpTrace([row]), OpTrace([full]), False, steps=frozenset({"add"}))
    unknown = joined(OpTrace([row]), OpTrace([full]), False)
    scale = Scale(1024.0, numel={2**14: 1024.0})
    of = lambda trace: estimate_times(trace, GPUS["H200"], scale)[0].microseconds
    assert of(known) < 30 and of(unknown) > 2 * of(known)


def test_parts_of_a_tensor_that_begin_within_a_sector_are_loaded_once():
    """64 programs load 16 indices of 8 bytes each, one by one, as bags of an embedding do."""
    row = Row("bag", "bag:1", True, 1, 64, block=32, accesses=2240, tensors=[Traffic(1024, 8192, 32768)], reused=24480)
    assert not growth_of_shared(row, Scale(extents={64: 64.0}), 4096.0)


@pytest.mark.parametrize("line", ["from triton.language import load as max", "import numpy as tl"])
def test_a_name_that_an_import_binds_is_not_what_it_seems(line: str):
    source = GATHER.replace("import triton\n", f"import triton\n{line}\n", 1)
    assert steady.kernels(GATHER) and not steady.kernels(source)


CHAIN = "        x = tl.sin(x) * 1.5 + 0.1\n" * 24


@pytest.mark.parametrize(
    "guarded",
    [
        CHAIN.replace("x", "total"),
        "        total = total * total\n",
        "        return\n",
        "        tl.store(out, 0.0)\n    else:\n        tl.store(parts, 1.0)\n",
        "        x = tl.load(parts + tl.arange(0, BLOCK))\n" + CHAIN,
        "        x = tl.load(parts + tl.arange(0, BLOCK))\n" + "        x = x * x\n" * 40,
        "        i = tl.arange(0, BLOCK)\n        x = tl.load(parts + i[:, None] * BLOCK + i[None, :])\n",
        "        x = tl.sort(tl.load(parts + tl.arange(0, BLOCK)))\n",
        "        if P > 1:\n            return\n",
        "        tl.store(out, total) if P > 1 else 0\n",
    ],
)
def test_data_may_not_decide_about_more_than_a_small_step(guarded):
    """A dry run, which has no data, may go past what they decide about."""
    assert "        tl.store(out" in LAST
    assert not steady.kernels(LAST[: LAST.index("        tl.store(out")] + guarded)


@pytest.mark.parametrize(
    "line",
    [
        "    total = tl.sum(total, 0) > 0 and tl.sin(total)\n",
        "    total = 0 < tl.sum(total, 0) < tl.sin(total)\n",
        "    total = tl.reduce(total, 0, combine)\n",
    ],
)
def test_nor_by_what_is_left_out_of_an_expression_or_by_what_combines(line):
    combine = "\n@triton.jit\ndef combine(a, b):\n    for _ in range(a):\n        b += 1\n    return b\n"
    assert steady.kernels(LAST + combine) == {"add", "combine"}
    place = LAST.index("    rounds = 1")
    assert not steady.kernels(LAST[:place] + line + LAST[place:] + combine)


def test_it_may_repair_a_row():
    """Which elements it stores to, a place in the grid decides."""
    repair = LAST[: LAST.index("    rounds = 1")] + (
        "    i = tl.program_id(0) * P + tl.arange(0, BLOCK)\n"
        "    if tl.max(total) == -float('inf'):\n"
        "        tl.store(out + i, float('nan'), mask=i < n)\n"
    )
    assert steady.kernels(repair) == {"add"}
