"""A submission's host code on tensors without data: how many programs it launches at sizes that no kernel runs at."""

import time

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from drkernel.judge.boundary.op_trace import STORES_UNKNOWN
from drkernel.judge.untrusted.simulated.dry_run import launched

NOTHING = {"list": [{"list": []}, {"dict": []}]}
LARGE = [["float32", [2**20, 2**20], [2**20, 1]]]
"""Four TiB."""


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


class Launching(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2**20))

    def forward(self, x):
        out = torch.empty_like(x)
        assert x.data_ptr() % 16 == 0 and x.is_contiguous()
        double[(min(132, triton.cdiv(x.numel(), 1024)),)](x, out, x.numel(), BLOCK=1024)
        double[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), BLOCK=1024)
        return out + self.weight


def run(model):
    return launched(model, NOTHING, {"list": [{"tensor": 0}]}, LARGE, False)


def test_grids_of_the_full_size_are_counted_without_any_data():
    (row,) = (row for row in run(Launching).rows if row.triton)
    assert (row.calls, row.programs) == (2, 132 + 2**30)
    assert not row.bytes_total


@pytest.mark.parametrize("read", [Tensor.item, float, int, bool])
def test_a_number_that_is_read_back_hides_no_launch(read, monkeypatch):
    forward = Launching.forward
    monkeypatch.setattr(Launching, "forward", lambda model, x: read(x.sum()) and forward(model, x))
    assert run(Launching).launches_triton


class Looping(nn.Module):
    """A launch and an addition for each of 1,024 rows; the weight is packed by the first call."""

    packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = torch.ones(2**20) * 2 + 1
        out = torch.empty_like(x)
        for row in range(0, len(x), 1024):
            double[(1024,)](x[row], out[row], x.shape[1], BLOCK=1024)
            out[row].add_(self.packed)
        return out


@pytest.mark.slow
def test_calls_of_the_full_size_are_counted_but_not_what_first_forwards_prepare():
    assert {row.site.partition(":")[0]: row.calls for row in run(Looping).rows} == {"double": 1024, "add_": 1024}


@torch.library.custom_op("test_dry_run::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


class Custom(nn.Module):
    def forward(self, x):
        return torch.ops.test_dry_run.doubled(x)


def test_a_custom_operator_launches_what_it_launches_with_data():
    assert [(row.calls, row.programs) for row in run(Custom).rows] == [(1, 2**30)]


class Converting(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 64).to(torch.bfloat16)

    def forward(self, x):
        assert x.device.type == "cuda" or not x.is_cuda
        assert self.inner.half().weight.dtype == torch.float16
        return x


def test_modules_convert_themselves():
    run(Converting)


def test_tensors_have_data_again_afterwards():
    run(Launching)
    x = torch.ones(4)
    assert (x + 1).tolist() == [2.0] * 4 and x.data_ptr()


@triton.jit
def every_eighth(x, out, n, S: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :] + 0 * tl.arange(0, S)[:, None]
    mine = (i < n) & (tl.arange(0, S)[:, None] == i % S)
    values = tl.sum(tl.load(x + i, mask=mine, other=0.0), 0)[None, :]
    tile = tl.dot(tl.broadcast_to(values, (16, BLOCK)), tl.zeros((BLOCK, 16), tl.float32))
    tl.store(out + i, values + tl.sum(tile) + 0 * i, mask=mine)


@triton.jit
def waits(x, out, n, S: tl.constexpr, BLOCK: tl.constexpr):
    tl.atomic_add(x + tl.arange(0, BLOCK), 1.0)
    while tl.atomic_cas(out.to(tl.pointer_type(tl.int32), bitcast=True), 1, 0) == 0:
        x += 1


@triton.jit
def fails(x, out, n, S: tl.constexpr, BLOCK: tl.constexpr):
    tl.static_assert(S < 0)


@triton.jit
def normal(x, out, n, S: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.erf(tl.load(x + i, mask=i < n)), mask=i < n)


def launch_of(kernel, lanes=1, shape=(1000,)):
    class Model(nn.Module):
        def forward(self, x):
            out = torch.empty_like(x)
            kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), S=lanes, BLOCK=64)
            return out

    (row,) = (
        r
        for r in launched(Model, NOTHING, {"list": [{"tensor": 0}]}, [["float32", shape, [1]]], False).rows
        if r.triton
    )
    return row


def test_lanes_that_are_masked_at_the_full_size_are_known():
    full, sparse = launch_of(every_eighth, 1, [2**20]), launch_of(every_eighth, 8, [2**20])
    assert full.arithmetic == full.dense_arithmetic > 0 and full.flops == full.dense_flops == 2**14 * 2 * 16 * 16 * 64
    assert sparse.arithmetic == pytest.approx(sparse.dense_arithmetic / 8)
    assert sparse.flops == pytest.approx(sparse.dense_flops / 8**1.5)


def test_a_kernel_that_waits_or_fails_without_data_says_what_it_can():
    start = time.monotonic()
    waiting, failing = launch_of(waits), launch_of(fails)
    assert (waiting.programs, failing.programs, failing.dense_arithmetic) == (16, 16, 0)
    assert waiting.dense_arithmetic > 0 and time.monotonic() - start < 20


def test_functions_that_torch_computes_are_counted_without_data():
    """The lanes of a kernel with tl.erf were not known, and no work of its programs at the full size."""
    whole, half = (launch_of(normal, shape=[n]) for n in (64, 32))
    assert whole.arithmetic == whole.dense_arithmetic == half.dense_arithmetic > 64
    assert half.arithmetic == half.dense_arithmetic / 2


def test_programs_say_what_the_least_of_them_moves():
    """Of 16 programs, four run; the last one of all has 40 of its 64 lanes. A kernel without an end moves nothing."""
    row = launch_of(normal)
    assert row.accesses == 32 and row.moved in (16 * 2 * 4 * 64, 16 * 2 * 4 * 40)
    assert launch_of(waits).moved == launch_of(fails).moved == 0
    assert launch_of(normal, shape=[100]).moved == 2 * 2 * 4 * 36


@triton.jit
def by_row(x, index, out, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    given = tl.load(x + tl.load(index + row) * 0 + i, mask=i < n)
    tl.store(out + row * n + i, given, mask=i < n)


@triton.jit
def as_data_say(x, index, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, tl.load(index + row), BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(out + row * n + i, tl.load(x + i, mask=i < n), mask=i < n)


def stores(launch):
    """The most bytes that the programs of a launch store, without masked lanes and with them."""
    metas = [["float32", [64, 3000], [3000, 1]], ["int32", [64], [1]]]
    model = type("Model", (nn.Module,), {"forward": lambda model, x, index: launch(x, index, torch.empty_like(x))})
    (row,) = (row for row in launched(model, NOTHING, {"list": [{"tensor": 0}, {"tensor": 1}]}, metas, False).rows
              if row.triton)  # fmt: skip
    return row.stored, row.stored_lanes


def test_what_a_launch_stores_at_most_is_told_without_data():
    blocks = triton.cdiv(64 * 3000, 1024)
    flat = lambda x, index, out: double[(blocks,)](x, out, x.numel(), BLOCK=1024) or out
    assert stores(flat) == (4 * 1024 * blocks, 4 * 1024 * blocks)
    few = lambda x, index, out: double[(8,)](x, out, x.numel(), BLOCK=1024) or out
    assert stores(few)[0] == 4 * 1024 * 8


def test_masks_behind_loaded_indices_leave_the_lanes_alone_as_a_bound():
    rows = lambda x, index, out: by_row[(64,)](x, index, out, 3000, BLOCK=2048) or out
    assert stores(rows) == (STORES_UNKNOWN, 64 * 4 * 2048)


def test_what_the_host_has_read_or_loops_over_data_tell_is_not_known():
    loops = lambda x, index, out: as_data_say[(64,)](x, index, out, 3000, BLOCK=1024) or out
    assert stores(loops)[0] == STORES_UNKNOWN
    read = lambda x, index, out: double[(int(index.sum()),)](x, out, 3000, BLOCK=1024) or out
    assert stores(read) == (STORES_UNKNOWN, STORES_UNKNOWN)


@pytest.mark.parametrize(
    "chosen",
    [
        lambda x: x[x[:, 0] > 0],
        lambda x: x[torch.where(x[:, 0] > 0)],
        lambda x: torch.masked_select(x, x > 0),
        lambda x: x.nonzero().to(x.dtype),
        lambda x: x[: max(torch.bincount(x[0].long(), minlength=8).tolist()[:8])],
        lambda x: x.repeat_interleave(x[:, 0].long(), dim=0),
    ],
)
def test_sizes_that_data_decide_hide_no_launch(chosen, monkeypatch):
    forward = Launching.forward
    monkeypatch.setattr(Launching, "forward", lambda model, x: forward(model, x) + chosen(x).sum())
    assert [(row.calls, row.programs) for row in run(Launching).rows if row.triton] == [(2, 132 + 2**30)]


class Listing(nn.Module):
    def forward(self, x):
        assert sum(sum(row) for row in x[:8, :8].tolist()) == 64
        return x


def test_a_list_of_numbers_is_one_copy():
    assert [(row.name, row.calls, row.tensors[0].numel) for row in run(Listing).rows] == [
        ("_local_scalar_dense", 9, 64)
    ]


class Drawing(Launching):
    def __init__(self):
        super().__init__()
        nn.init.trunc_normal_(self.weight, std=0.02)

    def forward(self, x):
        while (x < 0).any():
            x = x.abs()
        return super().forward(x)


def test_a_loop_until_no_number_is_outside_ends():
    assert [(row.calls, row.programs) for row in run(Drawing).rows if row.triton] == [(2, 132 + 2**30)]
