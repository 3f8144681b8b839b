"""Variables of loops are what they are on a GPU: int32, and constants in tl.static_range alone."""

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

from tests.judge.untrusted.simulated.launching import launch

SIZE = 12


@triton.jit
def numbers(out, first, last, step, SIZE: tl.constexpr):
    row = out
    for k in range(first, last, step):
        tl.store(row + 0, k // 3)
        tl.store(row + 1, k % 3)
        tl.store(row + 2, 7 // (2 * k + 1))
        tl.store(row + 3, k * 1103515245 + 12345)
        tl.store(row + 4, (k << 2) + (k >> 1))
        tl.store(row + 5, (k & 6) | (k ^ 9))
        tl.store(row + 6, -k + ~k)
        tl.store(row + 7, (k == 1).to(tl.int32) + (k < 2).to(tl.int32))
        tl.store(row + 8, (k / 2 * 10).to(tl.int32))
        tl.store(row + 9, (k << 1).to(tl.int64) * 2)
        tl.store(row + 10, (k * 0.5 + 0.25).to(tl.float16) * 4)
        tl.store(row + 11, 1 if k > 0 and k != 3 else 0)
        row += SIZE


def expected(values: list[int]) -> torch.Tensor:
    """The same in numbers of 32 bits with quotients rounded towards zero."""
    wrapped = lambda x: (x + 2**31) % 2**32 - 2**31
    rows = [
        [int(k / 3), k - 3 * int(k / 3), int(7 / (2 * k + 1)), wrapped(k * 1103515245 + 12345), (k << 2) + (k >> 1),
         (k & 6) | (k ^ 9), -k + ~k, (k == 1) + (k < 2), int(k / 2 * 10), 4 * k, int(2 * k + 1),
         int(k > 0 and k != 3)]
        for k in values
    ]  # fmt: skip
    return torch.tensor(rows, dtype=torch.int32)


@pytest.mark.parametrize("programs", [1, 3])
def test_a_variable_of_a_loop_is_an_int32(programs):
    values = list(range(-7, 9, 3))
    out = torch.empty(len(values), SIZE, dtype=torch.int32)
    launch(numbers, (programs,), out, -7, 9, 3, SIZE=SIZE)
    assert torch.equal(out, expected(values))


@triton.jit
def shifted_numbers(out, SIZE: tl.constexpr, ROUNDS: tl.constexpr):
    """Programs begin at numbers of their own."""
    pid = tl.program_id(0)
    for k in range(3 * pid - 7, 3 * pid - 7 + ROUNDS):
        row = out + (pid * ROUNDS + k - 3 * pid + 7) * SIZE
        tl.store(row + 0, k // 3)
        tl.store(row + 1, k % 3)


def test_it_is_the_same_where_programs_differ():
    out = torch.empty(6, 2, dtype=torch.int32)
    launch(shifted_numbers, (2,), out, SIZE=2, ROUNDS=3)
    assert torch.equal(out, expected([-7, -6, -5, -4, -3, -2])[:, :2])


@triton.jit
def constants(out, POWERS: tl.constexpr):
    for k in tl.static_range(POWERS):
        tl.store(out + tl.arange(0, 2**k), 1.0 * k)


def test_a_variable_of_a_static_range_is_a_constant():
    out = torch.empty(4)
    launch(constants, (1,), out, POWERS=3)
    assert out.tolist() == [2.0] * 4


@triton.jit
def refused(out, n, x, KIND: tl.constexpr):
    if KIND == "static":
        for k in tl.static_range(0, n):
            tl.store(out + k, 1)
    if KIND == "static of a variable":
        for k in range(n):
            for j in tl.static_range(k):
                tl.store(out + j, 1)
    if KIND == "float":
        for k in range(0, x):
            tl.store(out + k, 1)
    if KIND == "block":
        for k in range(0, tl.arange(0, 2)):
            tl.store(out + k, 1)
    if KIND == "step":
        for k in range(n, 0, -tl.num_programs(0)):
            tl.store(out + k, 1)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("static", "must be constants"),
        ("static of a variable", "must be constants"),
        ("float", "must be integers, found fp32"),
        ("block", "must be integers"),
        ("step", "a step below zero must be a constant"),
    ],
)
def test_bounds_that_a_compiled_loop_does_not_take_are_refused(kind, message):
    with pytest.raises(InterpreterError, match=message):
        launch(refused, (2,), torch.empty(4), 2, 2.0, KIND=kind)


@triton.jit
def return_from_a_loop(out, n):
    for k in range(n):
        if k > n:
            return
        tl.store(out + k, 1)


@triton.jit
def return_from_an_unrolled_loop(out, n):
    for k in tl.static_range(4):
        tl.store(out + k, 1)
        if k == 2:
            return


def test_only_an_unrolled_loop_is_left_by_a_return():
    out = torch.zeros(4)
    launch(return_from_an_unrolled_loop, (1,), out, 2)
    assert out.tolist() == [1, 1, 1, 0]
    with pytest.raises(
        InterpreterError, match="`return`: SyntaxError: Triton kernels cannot return from within a loop"
    ):
        launch(return_from_a_loop, (1,), out, 2)


@triton.jit
def carried(x, out, n, FORM: tl.constexpr):
    i = tl.arange(0, 16)
    total, number = tl.zeros((16,), tl.float32), 0
    for k in range(0, n, 16):
        total += tl.load(x + k + i)
        number += 1
    if FORM == "unrolled":
        total = 0.0
        for k in tl.static_range(0, 32, 16):
            total += tl.load(x + k + i)
    tl.store(out + i, total + number)


@pytest.mark.parametrize("form", ["", "unrolled"])
def test_loops_that_keep_types_and_those_that_are_unrolled_run(form):
    launch(carried, (1,), torch.ones(32), out := torch.zeros(16), 32, FORM=form)
    assert torch.equal(out, torch.full((16,), 4.0))


@triton.jit
def branches(x, out, n, FORM: tl.constexpr, KNOWN: tl.constexpr):
    i = tl.arange(0, 16)
    if FORM == "constant":
        if KNOWN:
            y = tl.load(x + i)
    elif FORM == "both":
        if n > 4:
            at = i
            y = tl.load(x + at)
        else:
            y = tl.load(x + i) * 2
    elif FORM == "before":
        y = tl.zeros((16,), tl.float32)
        if n > 4:
            y = tl.load(x + i)
    elif FORM == "inside":
        y = tl.load(x + i)
        if n > 4:
            z = y * 2
            y = z / 2
    tl.store(out + i, y)


@pytest.mark.parametrize("form", ["constant", "both", "before", "inside"])
def test_a_name_that_both_branches_or_what_is_before_them_bind(form):
    launch(branches, (1,), torch.ones(16), out := torch.zeros(16), 8, FORM=form, KNOWN=True)
    assert torch.equal(out, torch.ones(16))
