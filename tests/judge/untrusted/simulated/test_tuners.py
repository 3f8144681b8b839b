"""Which configurations of a tuner run on the simulated device, and what its trials change."""

import torch
import triton
import triton.language as tl

from drkernel.judge.untrusted.simulated.device import choosing, record
from tests.judge.untrusted.simulated.launching import launch


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"], reset_to_zero=["out"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def accumulate(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i) if EVEN else tl.load(x + i, mask=i < n, other=0.0)
    tl.atomic_add(out, tl.sum(value, axis=0))


def test_autotune_and_heuristics_run_the_inner_kernel_once():
    x, out = torch.ones(1024), torch.full((1,), 5.0)
    accumulate.cache.clear()
    accumulate[lambda meta: (triton.cdiv(1024, meta["BLOCK"]),)](x, out, 1024)
    assert out.item() == 1024  # reset_to_zero acts when the configuration is chosen,
    row = launch(accumulate, lambda meta: (triton.cdiv(1024, meta["BLOCK"]),), x, out, 1024)
    assert out.item() == 2048  # and, as on a GPU, not at later launches
    assert (row.name, row.calls, row.programs) == ("accumulate", 1, 16)


def test_what_a_choice_sets_to_zero_is_counted():
    x, out = torch.ones(512), torch.full((1,), 5.0)
    accumulate.cache.clear()
    for more in ["zero_"], []:
        with record() as trace:
            accumulate[(8,)](x, out, 512)
        assert [row.name for row in trace.rows if not row.triton] == more


def test_atomics_count_as_read_and_write():
    x, out = torch.ones(1024), torch.zeros(1)
    accumulate[(16,)](x, out, 1024)  # the first launch chooses, and sets to zero
    row = launch(accumulate, lambda meta: (16,), x, out, 1024)
    atomics = [(t.unique, t.total, t.stored) for t in row.tensors if t.numel == 1]
    assert atomics == [(4, 16 * 32, False), (4, 16 * 32, True)]


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def accumulate_more(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0))


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"], restore_value=["out"])
@triton.jit
def double_in_place(out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(out + i, mask=i < n), mask=i < n)


def test_a_choice_tries_the_kernel_on_the_arguments_of_the_launch():
    """What adds to its output has the trial's sum in it, unless that is set to zero or restored."""
    grid, x = lambda meta: (triton.cdiv(256, meta["BLOCK"]),), torch.ones(256)
    accumulate_more[grid](x, out := torch.zeros(1), 256)
    assert out.item() == 512
    double_in_place[grid](x, 256)
    assert x.tolist() == [2.0] * 256


@triton.autotune([triton.Config({"WHO": 0}), triton.Config({"WHO": 1}), triton.Config({"WHO": 2})], key=["n"])
@triton.jit
def name_itself(out, n, WHO: tl.constexpr):
    tl.store(out, WHO)


def test_at_other_shapes_other_configurations_are_chosen():
    found = []
    for n, model in enumerate((0, 1, -1, 2, 3, -2, -3, 4)):
        with choosing(model):
            name_itself[(1,)](out := torch.zeros(1, dtype=torch.int32), n)
        found.append(out.item())
    assert found == [0, 0, 0, 1, 2, 1, 2, 0]
