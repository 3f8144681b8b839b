"""Which programs of a launch run together, and that each does what it would do alone."""

import torch
import triton
import triton.language as tl
from triton.language.semantic import TritonSemantic

from drkernel.judge.untrusted.simulated.interpreter import Machine
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
def persistent(x, out, places, n, BLOCK: tl.constexpr):
    """Programs begin at numbers of their own: upwards in blocks, then downwards one by one."""
    step = tl.num_programs(0) * BLOCK
    for first in tl.range(tl.program_id(0) * BLOCK, n, step, num_stages=2):
        i = first.to(tl.int64) + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
    for last in range(n - 1 - tl.program_id(0), -1, -tl.num_programs(0)):
        tl.store(places + last, last)


def test_programs_of_a_persistent_kernel_stay_together_while_they_go_round_equally_often(monkeypatch):
    batches, batch = [], Machine._batch
    counted = lambda self, body, values, programs: batches.append(len(programs)) or batch(self, body, values, programs)
    monkeypatch.setattr(Machine, "_batch", counted)
    x = torch.randn(1000)
    for programs, expected in ((4, [4]), (5, [5, 1, 4])):  # sixteen blocks: four each; or four for one, three for four
        out, places = torch.empty(1000), torch.empty(1000, dtype=torch.int64)
        batches.clear()
        row = launch(persistent, (programs,), x, out, places, 1000, BLOCK=64)
        assert torch.equal(out, x * 2) and torch.equal(places, torch.arange(1000))
        assert batches == expected
        assert [(t.unique, t.stored) for t in row.tensors] == [(4000, False), (12000, True)]


def test_the_check_for_overflow_is_counted_as_if_it_were_computed(monkeypatch):
    x, out, places = torch.randn(1000), torch.empty(1000), torch.empty(1000, dtype=torch.int64)
    run = lambda: launch(persistent, (4,), x, out, places, 1000, BLOCK=64)
    counted = run()
    name = "binary_op_sanitize_overflow_impl"
    monkeypatch.setattr(BatchSemantic, name, getattr(TritonSemantic, name))
    assert run() == counted
