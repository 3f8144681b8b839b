"""What a launch is counted as, where its author would like it to be counted as less."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

from drkernel.judge.boundary.op_trace import site_of
from drkernel.judge.untrusted.simulated.builder import BatchBuilder, BlockValue
from drkernel.judge.untrusted.simulated.device import record


@triton.jit
def product(a, b, c, DECOYS: tl.constexpr, HALF_LAST: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    total = tl.dot(tl.load(a + i * N + j), tl.load(b + i * N + j), input_precision="ieee")
    total = total * 2 + 1
    far = tl.arange(0, 4096)
    for _ in range(DECOYS):
        total += 0.0 * tl.sum(tl.load(a + far, mask=far < 1, other=0.0))
    if HALF_LAST:
        half = tl.zeros((16, 16), tl.float16)
        total += tl.sum(tl.dot(half, half))
    tl.store(c + i * N + j, total)


def counted(**options):
    a, b = torch.randn(32, 32), torch.randn(32, 32)
    with record() as trace:
        product[(1,)](a, b, torch.empty_like(a), N=32, **options)
    return trace.rows[0]


def test_loads_that_are_masked_do_not_make_other_work_less():
    plain, among_decoys = counted(DECOYS=0, HALF_LAST=False), counted(DECOYS=8, HALF_LAST=False)
    assert plain.flops == among_decoys.flops == 2 * 32**3
    assert among_decoys.arithmetic >= plain.arithmetic


def test_products_of_two_kinds_count_as_the_slower_one():
    assert counted(DECOYS=0, HALF_LAST=True).math == "fp32"


def test_an_addition_costs_the_same_whatever_its_type_says_of_itself(monkeypatch):
    number = BlockValue(np.ones((1, 8), np.float32), tl.float32)
    builder, costs = BatchBuilder(), []
    monkeypatch.setattr(builder, "count", lambda data, cost: costs.append(cost))
    builder.binary_op(number, number, np.add)
    monkeypatch.setitem(vars(tl.float32), "is_floating", lambda: False)
    builder.binary_op(number, number, np.add)
    assert costs == [1, 1]


def test_tensors_and_operators_are_what_pytorch_knows_of_them(monkeypatch):
    x, y = torch.rand(64, 64), torch.empty(64, 64)
    with record() as plain:
        torch.neg(x, out=y)
    x.numel = y.numel = lambda: 1
    x.stride = y.stride = lambda *dim: 0 if dim else (0, 0)
    monkeypatch.setattr(torch.ops.aten.neg.out, "is_view", True)
    monkeypatch.setattr(torch.ops.aten.neg.out, "_op", torch.sort)
    with record() as trace:
        torch.neg(x, out=y)
    assert trace.to_json() == plain.to_json() and torch.equal(y, -x)


@triton.jit
def tile(a, b, c, n, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    mask = (i < n) & (j < n)
    left, right = tl.load(a + i * n + j, mask=mask, other=0.0), tl.load(b + i * n + j, mask=mask, other=0.0)
    tl.store(c + i * n + j, tl.dot(tl.trans(tl.trans(left)), right, input_precision="ieee"), mask=mask)


def test_padding_of_tiles_is_no_work():
    a, b = torch.randn(20, 20), torch.randn(20, 20)
    with record() as trace:
        tile[(1,)](a, b, torch.empty_like(a), 20, N=32)
    assert trace.rows[0].flops == pytest.approx(2 * 20**3)


@triton.jit
def tiles(a, b, c, n, EVERY: tl.constexpr, SUM: tl.constexpr, N: tl.constexpr):
    """Of EVERY programs, the first one has a tile. The others are masked off."""
    row = tl.program_id(0) // EVERY * N + tl.program_id(0) % EVERY * 1000 + tl.arange(0, N)[:, None]
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    left = tl.load(a + row * N + j, mask=row < n, other=0.0)
    right = tl.load(b + i * N + j, mask=row < n, other=0.0)
    if SUM:
        left += 1
    tl.store(c + row * N + j, tl.dot(left, right, input_precision="ieee") * 0.5, mask=row < n)


@pytest.mark.parametrize("summed", [False, True])
def test_programs_that_are_masked_off_change_no_work(summed):
    a, b = torch.randn(64, 32), torch.randn(32, 32)

    def counted(every):
        with record() as trace:
            tiles[(2 * every,)](a, b, torch.empty_like(a), 64, EVERY=every, SUM=summed, N=32)
        return trace.rows[0]

    for row in (counted(1), counted(2), counted(3)):
        assert row.flops == 2 * 64 * 32 * 32
        assert row.arithmetic == counted(1).arithmetic


@triton.jit
def shared(x, out, n, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    """Programs take turns, or the first one does everything."""
    first = tl.program_id(0) * (n if FIRST else BLOCK)
    for start in range(first, n, BLOCK if FIRST else tl.num_programs(0) * BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize(
    ("programs", "first", "idle", "share"), [(32, False, 22, 0.0), (8, False, 0, 0.0), (32, True, 31, 1.0)]
)
def test_it_is_seen_that_one_program_does_the_work_of_all(programs, first, idle, share):
    x = torch.randn(620)
    with record() as trace:
        shared[(programs,)](x, torch.empty_like(x), 620, FIRST=first, BLOCK=64)
    (grid,) = trace.rows[0].grids
    assert (grid.programs, grid.idle, grid.share) == (programs, idle, share)


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def test_traffic_beyond_a_view_belongs_to_the_tensor_behind_it():
    x, out = torch.randn(64), torch.empty(64)
    with record() as trace:
        double[(1,)](x[:1], out[:1], 64, BLOCK=64)
    assert {tensor.numel for tensor in trace.rows[0].tensors} == {64}


@triton.jit
def double_parts(xs, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(xs[0] + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize(("views", "numel"), [(2, 32), (4, 16), (16, 64)])
def test_few_views_of_a_tensor_are_tensors_and_many_are_what_lies_behind_them(views, numel):
    parts, out = torch.randn(64).chunk(views), torch.empty(100)
    with record() as trace:
        double_parts[(1,)](parts, out, 64, BLOCK=64)
    assert {tensor.numel for tensor in trace.rows[0].tensors} == {numel, 100}


@triton.jit
def give_away(x, where: tl.constexpr):
    where.append(x)


def test_the_language_computes_nothing_outside_of_kernels():
    where = []
    give_away[(1,)](torch.randn(4), where)
    with pytest.raises(RuntimeError, match="outside of a kernel"):
        tl.load(where[0] + tl.arange(0, 4))


@triton.jit
def constant(x: tl.constexpr, out):
    tl.store(out, 1.0)


def test_a_tensor_is_no_constant():
    with pytest.raises(InterpreterError, match="is a tensor"):
        constant[(1,)](torch.ones(2), torch.empty(1))


class Pointer:
    def __init__(self, tensor):
        self.tensor, self.dtype = tensor, tensor.dtype

    def data_ptr(self):
        return self.tensor.relu_().data_ptr()


def test_what_arguments_compute_is_recorded_and_happens_where_the_launch_is_left_out():
    x, out = torch.full((4,), -1.0), torch.empty(4)
    with record(skip=[site_of(double)]) as trace:
        double[(1,)](Pointer(x), out, 4, BLOCK=4)
    assert "relu_" in [row.name for row in trace.rows] and x.sum() == 0
    assert [row.programs for row in trace.rows if row.triton] == [0]


@triton.jit
def counts(x, y, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y + i % BINS, tl.load(x + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize(("bins", "contention"), [(1, 1000), (8, 125), (1024, 1)])
def test_atomic_operations_are_counted_by_address(bins, contention):
    x = torch.rand(1000)
    with record() as trace:
        counts[(8,)](x, torch.zeros(bins), 1000, BINS=bins, BLOCK=128)
    assert trace.rows[-1].contention == contention


@triton.jit
def normed(x, y, steps, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    for _ in range(steps):
        v = v / (1.0 + tl.sum(v, 0))
    tl.store(y + i, tl.cumsum(v, 0))


def test_reductions_and_scans_are_counted_by_program():
    x = torch.rand(256)
    with record() as trace:
        normed[(4,)](x, torch.empty(256), 9, BLOCK=64)
    assert trace.rows[-1].exchanges == 4 * 10


@triton.jit
def in_bins(x, y, BINS: tl.constexpr, BLOCK: tl.constexpr):
    numbers = tl.load(x + tl.arange(0, BLOCK))
    tl.store(y + tl.arange(0, BINS), tl.histogram(numbers, BINS))


def test_a_histogram_goes_through_its_numbers_for_each_32_bins():
    x = torch.zeros(1024, dtype=torch.int32)
    arithmetic = []
    for bins in (32, 1024):
        with record() as trace:
            in_bins[(1,)](x, torch.empty(bins, dtype=torch.int32), BINS=bins, BLOCK=1024)
        arithmetic.append(trace.rows[-1].arithmetic)
    assert arithmetic[1] > 8 * arithmetic[0] > 8 * 1024 * 5


@triton.jit
def chain(x, y, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    numbers = tl.load(x + i, mask=i < n, other=0.0)
    for _ in range(ROUNDS):
        numbers = numbers * 2.0
    one = tl.load(x)
    tl.store(y + i, numbers + one, mask=i < n)


def test_instructions_for_each_block_are_as_many_whatever_its_size_and_its_masks():
    def counts(rounds, grid, block):
        x = torch.rand(1000)
        with record() as trace:
            chain[(grid,)](x, torch.empty_like(x), len(x), ROUNDS=rounds, BLOCK=block)
        return trace.rows[-1].issued, trace.rows[-1].blocks

    issued, blocks = counts(4, 1, 1024)
    assert blocks == pytest.approx(2, rel=0.01)
    assert counts(4, 1, 4096) == (issued, blocks)
    assert counts(4, 16, 64) == pytest.approx((16 * issued, 16 * blocks), rel=0.1)
    assert counts(12, 1, 1024) == (issued + 8, blocks)


@triton.jit
def exchanged(x, y, HOW: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    numbers = tl.load(x + i)
    if HOW == "sort":
        numbers = tl.sort(numbers)
    elif HOW == "gather":
        for _ in tl.static_range(BLOCK.bit_length() * (BLOCK.bit_length() - 1) // 2):
            numbers = tl.gather(numbers, i ^ 1, 0)
    elif HOW == "transpose":
        for _ in tl.static_range(BLOCK.bit_length() * (BLOCK.bit_length() - 1) // 2):
            numbers = tl.reshape(tl.trans(tl.reshape(numbers, (2, BLOCK // 2))), (BLOCK,))
    tl.store(y + i, numbers)


@pytest.mark.parametrize("how", ["gather", "transpose"])
def test_numbers_of_other_threads_cost_what_they_cost_in_a_sort(how):
    def counts(how):
        x = torch.rand(256)
        with record() as trace:
            exchanged[(1,)](x, torch.empty_like(x), how, BLOCK=256)
        return trace.rows[-1]

    sort, own = counts("sort"), counts(how)
    assert own.arithmetic > 0.8 * sort.arithmetic and own.exchanges >= sort.exchanges
    assert counts("neither").arithmetic < 0.01 * sort.arithmetic


@triton.jit
def hashed(x, y, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    i = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)) * 2 // 2
    numbers = tl.load(x + i * 1, mask=i < n)
    for _ in range(ROUNDS):
        numbers = numbers * 1103515245
    tl.store(y + i * 1, numbers, mask=i < n)


def test_products_of_64_bits_cost_what_they_take_unless_they_may_be_addresses():
    def arithmetic(rounds, dtype):
        x = torch.zeros(1024, dtype=dtype)
        with record() as trace:
            hashed[(1,)](x, torch.empty_like(x), len(x), ROUNDS=rounds, BLOCK=1024)
        return trace.rows[-1].arithmetic

    assert arithmetic(0, torch.int64) == arithmetic(0, torch.int32)
    assert arithmetic(100, torch.int64) > 700 * 1024 > 2 * arithmetic(100, torch.int32)
