"""Which programs of a launch run together, and that each does what it would do alone."""

import pytest
import torch
import triton
import triton.language as tl
from triton.language.semantic import TritonSemantic

from drkernel.judge.untrusted.simulated.interpreter import NESTED_SPLITS, Machine
from drkernel.judge.untrusted.simulated.semantic import BatchSemantic
from tests.judge.untrusted.simulated.launching import launch


@triton.jit
def mixed(x, out, n, BLOCK: tl.constexpr):
    """Programs differ in trip count and branch; program 0 overwrites what it has stored before."""
    pid = tl.program_id(0)
    total = 0.0
    tl.store(out + pid, -1.0)
    for i in range(pid, n):
        total += tl.load(x + i)
    if pid % 2 == 0:
        tl.store(out + pid, total)
    else:
        tl.atomic_add(out + pid, total)


def test_programs_that_diverge_do_what_they_would_do_alone():
    x, out = torch.randn(12), torch.zeros(12)
    row = launch(mixed, (12,), x, out, 12, BLOCK=1)
    tails = x.flip(0).cumsum(0).flip(0)
    expected = torch.where(torch.arange(12) % 2 == 0, tails, tails - 1)
    torch.testing.assert_close(out, expected)
    loaded = next(t for t in row.tensors if not t.stored)
    assert loaded.total == (12 * 13 // 2 + 6) * 32  # the abandoned joint run is not counted
    assert row.reused < loaded.total - 12 * 32


@triton.jit
def persistent(x, out, places, n, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    """Programs begin at numbers of their own: upwards in blocks, then downwards one by one."""
    step = tl.num_programs(0) * BLOCK
    for first in tl.range(tl.program_id(0) * BLOCK, n, step, num_stages=2):
        i = first.to(tl.int64) + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
    for last in range(n - 1 - tl.program_id(0), -1, -PROGRAMS):
        tl.store(places + last, last)


@pytest.fixture
def batches(monkeypatch):
    """The sizes of the batches that run, in order."""
    sizes, batch = [], Machine._batch
    counted = lambda self, body, values, programs, *more: (
        sizes.append(len(programs)) or batch(self, body, values, programs, *more)
    )
    monkeypatch.setattr(Machine, "_batch", counted)
    return sizes


def test_programs_of_a_persistent_kernel_stay_together_while_they_go_round_equally_often(batches):
    x = torch.randn(1000)
    for programs, expected in ((4, [4]), (5, [5, 1, 4])):  # sixteen blocks: four each; or four for one, three for four
        out, places = torch.empty(1000), torch.empty(1000, dtype=torch.int64)
        batches.clear()
        row = launch(persistent, (programs,), x, out, places, 1000, BLOCK=64, PROGRAMS=programs)
        assert torch.equal(out, x * 2) and torch.equal(places, torch.arange(1000))
        assert batches == expected
        assert [(t.unique, t.stored) for t in row.tensors] == [(4000, False), (12000, True)]


@triton.jit
def one_after_the_other(out, turn, places):
    """Programs leave the first loop one by one."""
    pid = tl.program_id(0)
    while tl.atomic_add(turn, 0) < pid:
        pass
    place = tl.load(out)
    tl.store(places + pid, place)
    tl.store(out, place + 1)
    tl.atomic_add(turn, 1)


def test_programs_that_leave_a_loop_one_by_one_run_alone_after_a_few_splits(batches):
    out, turn = torch.zeros(2, 1, dtype=torch.int32)
    places = torch.empty(32, dtype=torch.int32)
    launch(one_after_the_other, (32,), out, turn, places)
    assert torch.equal(places, torch.arange(32, dtype=torch.int32)) and out.item() == turn.item() == 32
    assert batches.count(1) == 32 and len(batches) == 32 + 1 + NESTED_SPLITS


def test_the_check_for_overflow_is_counted_as_if_it_were_computed(monkeypatch):
    x, out, places = torch.randn(1000), torch.empty(1000), torch.empty(1000, dtype=torch.int64)
    run = lambda: launch(persistent, (4,), x, out, places, 1000, BLOCK=64, PROGRAMS=4)
    counted = run()
    name = "binary_op_sanitize_overflow_impl"
    monkeypatch.setattr(BatchSemantic, name, getattr(TritonSemantic, name))
    assert run() == counted
