"""Programs without data that leave their tensors at the published sizes, whatever the data are."""

import pytest
import torch
import triton
import triton.language as tl

from drkernel.judge.untrusted.simulated.bounds import MemoryFault
from tests.judge.untrusted.simulated.test_limits import dry, verdict


@triton.jit
def rows(x, index, n, BLOCK: tl.constexpr, FORM: tl.constexpr):
    """Doubles a row of n numbers, whose number is often one too many for int32."""
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    mask = i < n
    if FORM == "int64":
        row = row.to(tl.int64)
    elif FORM == "an index":
        row = row * 0 - 1 + tl.load(index)
    elif FORM == "a comparison":
        mask &= tl.load(x + i) > 0.5
        row = -1
    elif FORM == "an integer":
        row = tl.load(x).to(tl.int32) - 1
    elif FORM == "a place":
        row = tl.argmax(tl.load(x + i, mask=mask, other=-1.0), 0) - 1
    elif FORM == "masked":
        mask &= row < 4
    elif FORM == "before":
        row = row.to(tl.int64) - 1
    elif FORM == "behind":
        row = row.to(tl.int64) + 1
    tl.store(x + row * n + i, 2.0, mask=mask)


def run(form, shape=(2**15 + 1, 2**16), programs=None):
    index = lambda x: torch.zeros(4, dtype=torch.int64)
    dry(lambda x: rows[(programs or len(x),)](x, index(x), x.shape[1], BLOCK=x.shape[1], FORM=form), shape)


def test_the_last_program_tells_of_an_offset_that_int32_does_not_hold():
    run("", (2**15, 2**16))
    found = r"kernel `rows` line .*: store .* element -2147483648 of `x`, which has 2147549184 .*int32"
    with pytest.raises(MemoryFault, match=found):
        run("")


@pytest.mark.parametrize("form", ["int64", "an index", "a comparison", "an integer", "a place", "masked"])
def test_what_is_right_or_follows_from_data_is_not_refused(form):
    run(form)


def test_any_program_that_leaves_a_tensor_is_seen():
    for shape in ((4, 64), (2**16, 64)):
        with pytest.raises(MemoryFault, match=r"element .* of `x`, which has .*mask missing"):
            run("behind", shape)
    with pytest.raises(MemoryFault, match="element -64 of `x`"):
        run("before", (4, 64))
    with pytest.raises(MemoryFault):
        run("", (4, 64), programs=5)


@triton.jit
def large(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    j = n - 1 - i
    tl.store(out + i, tl.load(x + tl.where(j < 0, 0, j), mask=i < n), mask=i < n)


def test_sizes_beyond_int32_are_int64():
    for n in (2**31 + 5, 2**32 + 5):
        dry(lambda x: large[(triton.cdiv(x.numel(), 64),)](x, torch.empty_like(x), x.numel(), BLOCK=64), [n])


@pytest.mark.slow
def test_offsets_are_held_against_the_published_sizes(judge):
    found = verdict(judge, "40000, 65536", row="tl.program_id(0)")
    assert (found.status, found.reason) == ("invalid", "out_of_bounds"), found
    assert "kernel `_k`" in found.detail and "int32" in found.detail and "published" in found.detail, found
    assert verdict(judge, "40000, 65536").ok
