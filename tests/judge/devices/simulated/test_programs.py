"""How many programs share the work of a kernel at full size."""

import dataclasses

import pytest
import torch
import triton
import triton.language as tl

from drkernel.judge.boundary.op_trace import Grid, OpTrace, Row
from drkernel.judge.devices.simulated.grids import joined
from drkernel.judge.devices.simulated.programs import programs
from drkernel.judge.devices.simulated.rescale import Scale
from drkernel.judge.untrusted.simulated.device import record


def test_a_launch_of_many_programs_does_not_share_the_work_of_another_one():
    busy, idle = Grid(1, 64, True, work=(1e4, 1e6, 1e6)), Grid(1584, 1, False, work=(1584.0, 1584.0, 1.0))
    row = Row("k", "k:1", True, 2, 1585, accesses=10**4, grids=[busy, idle])
    assert all(number < 1.2 for number in (programs(row, Scale()).lanes, programs(row, Scale()).accesses))
    assert programs(row, Scale()).fewest == 1585 / 2
    full = Row("k", "k:1", True, 2, 1585, grids=[Grid(1, 0, False), Grid(1584, 0, False)])
    assert joined(OpTrace([row]), OpTrace([full]), False).rows[0].full_grids == [1.0, 1584.0]
    assert joined(OpTrace([row]), OpTrace([dataclasses.replace(full, grids=[])]), False).rows[0].full_grids == []


def test_programs_that_only_store_a_number_share_nothing_unless_the_dry_run_shows_that_all_work():
    row = Row("k", "k:1", True, 1, 264, full_grid=264.0, grids=[Grid(264, 1, False, uneven=(8.0, 66.0, 264.0))])
    found = programs(row, Scale(), (1e6, 1e6, 1e6))
    assert (found.accesses, found.lanes, found.operations) == (33.0, 4.0, 1.0)
    for told, expected in ((9e5, 264.0), (1e5, 4.0), (1e8, 4.0)):  # one in four that ran may be the one that works
        assert programs(dataclasses.replace(row, full_lanes=told), Scale(), (1e6, 1e6, 1e6)).lanes == expected
    row.grids[0] = dataclasses.replace(row.grids[0], work=(1e4, 1e4, 1e4), light=(0.0, 9e3, 0.0))
    row.full_lanes = 9e5  # of which the others did nine tenths in the small run, too
    assert programs(row, Scale(), (1e6, 1e6, 1e6)).lanes == 4.0


@triton.jit
def one_does_all(x, out, side, n, BLOCK: tl.constexpr):
    if tl.program_id(0) == 0:
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n, BLOCK):
            total += tl.load(x + start + tl.arange(0, BLOCK))
        tl.store(out, tl.sum(total))
    else:
        tl.store(side, 0.0)


def test_the_busiest_program_is_known_by_all_that_it_does():
    x, out = torch.randn(1024), torch.empty(2)
    with record() as trace:
        one_does_all[(32,)](x, out[:1], out[1:], 1024, BLOCK=64)
    (grid,) = trace.rows[0].grids
    assert grid.idle == 0
    assert grid.work[:2] == (17 + 31, 1024 + 1 + 31)
    assert grid.uneven == pytest.approx((17 * 32 / 48, 1025 * 32 / 1056, 32), rel=0.01)


def test_launches_on_tensors_of_several_sizes_weigh_as_their_data_at_full_size():
    scale = Scale(bytes=4000.0, numel={2048: 4096.0, 64: 64.0})
    large, small = Grid(1, 2048, False, work=(2.0, 4096.0, 2048.0), touched=2048), Grid(1, 64, False, touched=64)
    small.work = (2.0, 128.0, 64.0)
    row = Row("k", "k:1", True, 2, 2, block=4096, grids=[large, small], full_grid=1024.5)
    full = Row("k", "k:1", True, 2, 2049, grids=[Grid(2048, 0, False), Grid(1, 0, False)])
    told = joined(OpTrace([row]), OpTrace([full]), False).rows[0]
    assert told.full_grids == [2048.0, 1.0]
    assert programs(told, scale).lanes > 500


def test_a_launch_of_many_programs_does_not_weigh_more_since_the_tensor_is_large_that_it_touches():
    scale = Scale(bytes=4000.0, numel={4096: 4096.0, 64: 64.0})
    busy, many = Grid(1, 64, True, work=(1e4, 1e4, 1e4), touched=64), Grid(1584, 1, False, touched=4096)
    many.work = (1584.0, 1584.0, 1584.0)
    row = Row("k", "k:1", True, 2, 1585, grids=[busy, many], full_grid=792.5, full_grids=[1.0, 1584.0])
    assert programs(row, scale).lanes < 1.2


def test_a_launch_of_few_programs_weighs_as_they_do_where_no_program_can_do_more_at_full_size():
    scale = Scale(bytes=4000.0, numel={2048: 512.0, 4: 2048.0})
    large, tiny = Grid(2, 2048, False, work=(6.0, 6e3, 4e4), touched=2048), Grid(1, 4, False, touched=4)
    tiny.work = (3.0, 12.0, 2e4)
    row = Row("k", "k:1", True, 2, 3, block=1024, grids=[large, tiny], full_grid=513.0, full_grids=[1024.0, 2.0])
    assert programs(row, scale).accesses < 10
    assert programs(dataclasses.replace(row, loop_free=True), scale).accesses > 300
