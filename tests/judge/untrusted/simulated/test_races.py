"""Programs of one launch that use what others store without waiting for them."""

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

from tests.judge.untrusted.simulated.launching import launch

STORES = "which another program of this launch stores"
RACE = "which another program of this launch (stores|loads)"


@triton.jit
def rounds(x, y, n, ROUNDS: tl.constexpr, TWO_TENSORS: tl.constexpr):
    """Each program adds its neighbour's number to its own, as if a round ended for all programs at once."""
    pid = tl.program_id(0)
    right = (pid + 1) % n
    for _ in tl.static_range(ROUNDS):
        if TWO_TENSORS:
            i = tl.arange(0, 2)
            tl.store(y + pid, tl.sum(tl.load(tl.where(i == 0, y + pid, x + right))))
        else:
            tl.store(y + pid, tl.load(x + pid) + tl.load(x + right))
        x, y = y, x


def test_a_round_that_needs_the_neighbours_round_is_a_race():
    x, y = torch.ones(8), torch.zeros(8)
    launch(rounds, (8,), x, y, 8, ROUNDS=1, TWO_TENSORS=False)
    with pytest.raises(InterpreterError, match=f"kernel `rounds` line .*: loads element 1 of `y`, {STORES}"):
        launch(rounds, (8,), x, y, 8, ROUNDS=2, TWO_TENSORS=False)
    with pytest.raises(InterpreterError, match=RACE):
        launch(rounds, (8,), x, y, 8, ROUNDS=2, TWO_TENSORS=True)


@triton.jit
def add_up(x, out, APART: tl.constexpr):
    """With APART, each program goes round another number of times, so that they run one by one."""
    pid = tl.program_id(0)
    value = tl.load(x + pid)
    for _ in range(pid if APART else 0, 2 * pid if APART else 0):
        value += 0.0
    tl.store(out, tl.load(out) + value)


@pytest.mark.parametrize(("programs", "apart"), [(2, True), (40, True), (40, False)])
def test_a_sum_without_atomics_is_a_race_in_any_order(programs, apart):
    x = torch.ones(programs)
    launch(add_up, (1,), x, torch.zeros(1), APART=apart)
    with pytest.raises(InterpreterError, match=RACE):
        launch(add_up, (programs,), x, torch.zeros(1), APART=apart)


@triton.jit
def last_of_all(x, out, programs, WAITS: tl.constexpr):
    """Each program loads what the last one stores."""
    pid = tl.program_id(0)
    tl.store(x + pid, pid)
    if WAITS == "no":
        tl.atomic_add(x + programs, 1, mask=pid < 0)
    elif WAITS == "dropped":
        tl.atomic_add(x + programs, 1)
    elif WAITS == "barrier":
        tl.atomic_add(x + programs, 1)
        while tl.atomic_add(x + programs, 0) < programs:
            pass
    else:
        while tl.load(x + programs, volatile=True) < 0:
            pass
    tl.store(out + pid, tl.load(x + programs - 1))


def test_programs_that_wait_for_others_may_load_what_these_store():
    for waits in ("barrier", "volatile"):
        out = torch.zeros(4, dtype=torch.int32)
        launch(last_of_all, (4,), torch.zeros(5, dtype=torch.int32), out, 4, WAITS=waits)
        assert out.tolist() == [3] * 4
    for waits in ("no", "dropped"):  # who drops what an atomic operation returns has not waited
        with pytest.raises(InterpreterError, match=RACE):
            launch(last_of_all, (4,), torch.zeros(5, dtype=torch.int32), out, 4, WAITS=waits)


@triton.jit
def own(table, out, BLOCK: tl.constexpr):
    """All programs store the same table, and each loads from it what it needs. Then it works in its row in place."""
    pid, i = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(table + i, 2.0 * i)
    value = tl.load(table + pid) + tl.load(table + i)
    if pid % 2 == 0:
        value += 1
    row = out + tl.program_id(1) * BLOCK * 4 + pid * BLOCK + i
    tl.store(row, value)
    tl.store(row, tl.load(row) * 2)


def test_what_programs_store_themselves_is_no_race():
    out = torch.zeros(2, 4, 16)
    launch(own, (4, 2), torch.zeros(16), out, BLOCK=16)
    pid, i = torch.arange(4.0)[:, None], torch.arange(16.0)
    assert torch.equal(out, (4 * pid + 4 * i + 2 * (pid % 2 == 0)).expand(2, 4, 16))


@triton.jit
def turn(x, n, BLOCK: tl.constexpr, TO_ITSELF: tl.constexpr):
    """Transposes a matrix in place, block by block; with TO_ITSELF each block stays where it is."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    block = tl.load(x + rows * n + columns)
    tl.store(x + (rows * n + columns if TO_ITSELF else columns * n + rows), block + 1)


def test_to_store_what_another_program_loads_is_a_race():
    """All programs of a batch load before the first stores: here, and on no GPU."""
    x = torch.zeros(32, 32)
    launch(turn, (4, 4), x, 32, BLOCK=8, TO_ITSELF=True)
    assert bool((x == 1).all())
    with pytest.raises(InterpreterError, match=r"stores element .* of `x`, which another program of this launch loads"):
        launch(turn, (4, 4), x, 32, BLOCK=8, TO_ITSELF=False)


@triton.jit
def count_up(count, out, BLOCK: tl.constexpr, BY: tl.constexpr):
    """Each lane, or each program with a block of one lane, keeps what an atomic operation returns."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    before = tl.atomic_add(count + i * 0, 1) if BY == "add" else tl.atomic_xchg(count + i * 0, i)
    tl.store(out + i, before)


@pytest.mark.parametrize(("programs", "block", "by"), [(64, 1, "add"), (64, 1, "xchg"), (2, 32, "add")])
def test_what_atomic_operations_return_follows_from_no_order_of_programs_or_lanes(programs, block, by):
    found = []
    for _ in range(2):
        out = torch.empty(64, dtype=torch.int32)
        launch(count_up, (programs,), torch.full((1,), -1, dtype=torch.int32), out, BLOCK=block, BY=by)
        found.append(out)
    assert torch.equal(*found)
    assert out.unique().numel() == 64
    assert (out[:32].diff() == 1).sum() < 8


OTHER = "which another program of this launch gives another number"


@triton.jit
def too_wide(x, out, n, BLOCK: tl.constexpr, FILL: tl.constexpr, APART: tl.constexpr):
    """Each program stores its own block and the next one's. APART as in `add_up`."""
    start = tl.program_id(0) * BLOCK
    i = start + tl.arange(0, 2 * BLOCK)
    value = tl.load(x + i, mask=i < n, other=0.0)
    for _ in range(start if APART else 0, 2 * start if APART else 0):
        value += 0.0
    tl.store(out + i, value * 2 if FILL == "same" else tl.where(i < start + BLOCK, value * 2, 0.0), mask=i < n)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("programs", "apart"), [(2, True), (40, False), (70, False)])
def test_programs_that_store_different_numbers_at_one_place_are_a_race(programs, apart, dtype):
    x = torch.randn(programs * 4).to(dtype)
    out = torch.empty_like(x)
    launch(too_wide, (programs,), x, out, len(x), BLOCK=4, FILL="same", APART=apart)
    assert torch.equal(out, x * 2)
    with pytest.raises(InterpreterError, match=rf"kernel `too_wide` line .*: stores element .* of `out`, {OTHER}"):
        launch(too_wide, (programs,), x, out, len(x), BLOCK=4, FILL="zeros", APART=apart)


@triton.jit
def one_place(out, programs, FORM: tl.constexpr):
    pid = tl.program_id(0)
    if FORM == "cleared":
        tl.store(out + tl.arange(0, 64), 0)
        tl.store(out + pid, pid + 1)
    elif FORM == "number":
        tl.store(out, pid)
    elif FORM == "twice":
        tl.store(out + pid, 1)
        if pid % 2 == 0:
            tl.store(out + pid, 2)
        tl.store(out + 63, 5)
        for _ in range(pid):
            tl.store(out + pid, 3)
        tl.store(out + 63, 5)
    elif FORM == "waits":
        tl.store(out + pid, 1)
        if tl.atomic_add(out + 63, 1) == programs - 1:
            tl.store(out + tl.arange(0, 32), 7, mask=tl.arange(0, 32) < programs)


@pytest.mark.parametrize("form", ["cleared", "number"])
def test_an_element_that_programs_give_different_numbers_is_a_race(form):
    launch(one_place, (1,), torch.zeros(64, dtype=torch.int32), 1, FORM=form)
    with pytest.raises(InterpreterError, match=OTHER):
        launch(one_place, (8,), torch.zeros(64, dtype=torch.int32), 8, FORM=form)


def test_programs_may_store_again_what_is_their_own_or_after_they_have_waited():
    """They run together at first, and one by one once they go round a loop each as often as it must."""
    for form, expected in (("twice", [2, *[3] * 7]), ("waits", [7] * 8)):
        out = torch.zeros(64, dtype=torch.int32)
        launch(one_place, (8,), out, 8, FORM=form)
        assert out[:8].tolist() == expected
