"""What eager PyTorch takes on the modelled H200, beside what was measured on a real one."""

import math

import pytest
import torch
from torch.nn.functional import grid_sample, group_norm, interpolate, multi_margin_loss, nll_loss

from drkernel.judge.boundary.dimensions import SCANS, SELECTIONS, SORTS
from drkernel.judge.boundary.op_trace import OpTrace, Row, Traffic
from drkernel.judge.boundary.sequences import BY_COLUMNS
from drkernel.judge.devices.simulated.eager import BY_ROW_US, CONTENDED_US, EAGER, INTERPOLATIONS, NEAREST, SERIAL_US
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.devices.simulated.rescale import Scale, scale_of
from drkernel.judge.devices.simulated.roofline import estimate_times
from drkernel.judge.untrusted.simulated.device import record
from drkernel.tasks.module import Reference
from drkernel.types import Task

NORM = """
import torch
from torch import nn
CHANNELS, SIDE = 64, {side}
class Model(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.norm = nn.LayerNorm(shape)
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.rand({rows}, CHANNELS, SIDE, SIDE)]
def get_init_inputs():
    return [CHANNELS, SIDE, SIDE]
"""


def total(trace: OpTrace, scale: Scale | None = None) -> float:
    return sum(row.microseconds for row in estimate_times(trace, GPUS["H200"], scale or Scale()))


def layer_norm(rows: int, side: int) -> float:
    task = Task("norm", NORM.format(rows=rows, side=side), small={"CHANNELS": 4, "SIDE": 8})
    reference = Reference(task, task.small)
    model, inputs = reference.model(0), reference.inputs(0)
    with record() as trace:
        model(*inputs)
    return total(trace, scale_of(task))


def product(rows: int, columns: int, terms: int, calls: int = 1) -> OpTrace:
    flops = 2.0 * calls * rows * columns * terms
    return OpTrace([Row("mm", "mm", False, calls=calls, flops=flops, output_numel=rows * columns)])


def test_a_layer_norm_of_few_long_rows_takes_one_block_for_each():
    assert layer_norm(16, 256) == pytest.approx(8289, rel=0.1)
    assert layer_norm(4096, 16) < 1000  # as much data in many rows


def test_a_long_sum_of_products_is_computed_in_parts_where_outputs_are_few():
    assert total(product(256, 256, 262_144)) == pytest.approx(668, rel=0.25)
    assert total(product(256, 256, 1024)) * 256 > 2.5 * total(product(256, 256, 262_144))


def test_equal_products_take_as_long_each_as_one_alone():
    once, thrice = total(product(2048, 1024, 512)), total(product(2048, 1024, 512, calls=3))
    assert thrice == pytest.approx(3 * once, rel=0.05)


def test_a_recurrent_layer_has_the_outputs_of_one_step_at_a_time():
    steps, outputs, flops = 256, 256 * 64 * 512, 2.0 * 256 * 64 * 512 * 4 * 1024
    layer = OpTrace([Row("lstm", "lstm", False, calls=steps, flops=flops, output_numel=outputs)])
    assert total(layer) > 2 * total(product(256 * 64, 512, 4 * 1024))


@pytest.mark.parametrize("fields", [{}, {"block": 1}, {"block": 2**62, "output_numel": 2**62}, {"flops": 1.0}])
def test_whatever_a_runner_says_of_an_operator_has_a_price(fields):
    for name in {"lstm", "mm", "convolution", "masked_fill", *EAGER, *SERIAL_US, *CONTENDED_US, *BY_ROW_US}:
        assert 0 <= total(OpTrace([Row(name, name, False, **fields)])) < math.inf


def random(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def definite(size: int) -> torch.Tensor:
    matrix = random(size, size)
    return matrix @ matrix.T + size * torch.eye(size)


SERIAL = {
    "sort of one row": (19.3, lambda: random(1024).sort()),
    "sort of rows": (25.3, lambda: random(64, 4096).sort()),
    "long sort": (46.7, lambda: random(65536).sort()),
    "largest of rows": (32.9, lambda: random(4096, 128).topk(8)),
    "median of rows": (18.9, lambda: random(64, 4096).median(-1)),
    "distinct numbers": (61.9, lambda: random(65536).mul_(8).long().unique()),
    "sums along rows": (18.6, lambda: random(64, 4096).cumsum(-1)),
    "sums of one row": (3.7, lambda: random(65536).cumsum(-1)),
    "sums along columns": (192.6, lambda: random(32, 512, 128).cumsum(1)),
    "largest so far": (170.6, lambda: random(65536).cummax(0)),
    "many numbers added to few": (
        100.8,
        lambda: torch.zeros(8, 64).index_add_(0, random(65536).mul_(8).long(), random(65536, 64)),
    ),
    "selected rows": (40.8, lambda: random(65536, 64)[random(65536).mul_(8).long()]),
    "tokens by a mask": (45.0, lambda: random(4096, 256)[random(4096) > 0.9]),
    "tokens by a mask, set": (
        43.0,
        lambda: random(4096, 256).index_put_((torch.arange(4096) < 500,), random(500, 256)),
    ),
    "a number for the host": (20.0, lambda: random(8)[0].item()),
    "inverse": (125.5, lambda: torch.linalg.inv(definite(64))),
    "inverses": (65.0, lambda: torch.linalg.inv(definite(32).expand(64, 32, 32).clone())),
    "solution": (481.1, lambda: torch.linalg.solve(definite(256), random(256, 256))),
    "triangular solution": (48.4, lambda: torch.linalg.solve_triangular(definite(256), random(256, 256), upper=True)),
    "determinant": (379.1, lambda: torch.linalg.det(definite(256))),
    "Cholesky": (86.5, lambda: torch.linalg.cholesky(definite(256))),
    "QR": (708.0, lambda: torch.linalg.qr(random(256, 256))),
    "singular values": (760.2, lambda: torch.linalg.svd(random(64, 64))),
    "eigenvalues": (525.1, lambda: torch.linalg.eigh(definite(64))),
}
"""Microseconds of an H200's kernels (`benchmarks/serial_operators.py`), and the operator."""


@pytest.mark.parametrize("name", SERIAL)
def test_what_runs_one_step_after_the_other_takes_as_long_as_on_a_gpu(name):
    measured, operator = SERIAL[name]
    with record() as trace:
        operator()
    longest = max(estimate_times(trace, GPUS["H200"], Scale()), key=lambda row: row.microseconds)
    assert 0.6 < longest.microseconds / measured < 1.6


def priced(operator) -> float:
    with record() as trace:
        operator()
    return total(trace)


IDS = torch.arange(65536) % 1000
SAME = {
    "a softmax of rows with one number behind each": (
        lambda: random(64, 4096, 1).softmax(1),
        lambda: random(64, 4096).softmax(1),
    ),
    "a scan of one column": (lambda: random(65536, 1).cumsum(0), lambda: random(65536).cumsum(0)),
    "a sum of short columns, turned": (lambda: random(32, 65536).t().sum(-1), lambda: random(32, 65536).sum(0)),
    "a number where a mask is": (
        lambda: random(512, 512).index_put_((IDS.view(256, 256).repeat(2, 2) > 9,), torch.tensor(0.0)),
        lambda: random(512, 512).masked_fill_(IDS.view(256, 256).repeat(2, 2) > 9, 0.0),
    ),
    "selected rows of a number": (lambda: random(1000, 1).index_select(0, IDS), lambda: random(1000)[IDS]),
    "few rows that are added to many": (
        lambda: random(65536, 64).index_add_(0, IDS[:64], random(64, 64)),
        lambda: random(1000, 64).index_add_(0, IDS[:64], random(64, 64)),
    ),
    "few rows that are put among many": (
        lambda: random(65536, 64).index_copy_(0, IDS[:64], random(64, 64)),
        lambda: random(1000, 64).index_copy_(0, IDS[:64], random(64, 64)),
    ),
    "a layer norm without means": (
        lambda: torch.rms_norm(random(65536, 64), (64,)),
        lambda: torch.layer_norm(random(65536, 64), (64,)),
    ),
    "a bilinear interpolation of one plane of a volume": (
        lambda: interpolate(random(4, 16, 1, 32, 32), scale_factor=(1, 2, 2), mode="trilinear"),
        lambda: interpolate(random(4, 16, 32, 32), scale_factor=2, mode="bilinear"),
    ),
    "a recurrent layer of three gates or four": (
        lambda: torch.nn.GRU(64, 64)(torch.zeros(32, 8, 64)),
        lambda: torch.nn.LSTM(64, 64)(torch.zeros(32, 8, 64)),
    ),
    "a linear interpolation in two dimensions by its places": (
        lambda: grid_sample(random(1, 512, 32, 32), random(1, 64, 64, 2), align_corners=False),
        lambda: interpolate(random(1, 512, 32, 32), scale_factor=2, mode="bilinear"),
    ),
    "the eigenvalues of a matrix that is symmetric": (
        lambda: torch.linalg.eigvals(definite(64)),
        lambda: torch.linalg.eigvalsh(definite(64)),
    ),
    "a pseudoinverse": (lambda: torch.linalg.pinv(random(64, 64)), lambda: torch.linalg.svd(random(64, 64))),
    "a solution by Cholesky's factor": (
        lambda: torch.cholesky_solve(random(256, 2), definite(256)),
        lambda: torch.cholesky_inverse(definite(256)),
    ),
    "reflections, and all of QR": (
        lambda: [torch.linalg.householder_product(*torch.geqrf(random(256, 256))) for _ in range(2)],
        lambda: torch.linalg.qr(random(256, 256)),
    ),
    "boundaries that come first or last": (
        lambda: torch.bucketize(random(2**20), random(64).sort().values),
        lambda: torch.searchsorted(random(64).sort().values, random(2**20)),
    ),
    "rows that are averaged by places": (
        lambda: torch.zeros(8, 64).index_reduce_(0, IDS % 8, random(65536, 64), "mean"),
        lambda: torch.zeros(8, 64).index_add_(0, IDS % 8, random(65536, 64)),
    ),
    "numbers that are added by places": (
        lambda: torch.zeros(8).scatter_(0, IDS % 8, random(65536), reduce="add"),
        lambda: torch.zeros(8).scatter_add_(0, IDS % 8, random(65536)),
    ),
}
"""Two ways to ask for what takes a GPU as long."""


@pytest.mark.parametrize("name", SAME)
@torch.no_grad()
def test_what_takes_a_gpu_as_long_has_one_price(name):
    one, other = (longest(operator) for operator in SAME[name])
    assert one == pytest.approx(other, rel=0.35)


def longest(operator) -> float:
    with record() as trace:
        operator()
    rows = [row for row in trace.rows if row.name not in MAKES]
    return max(row.microseconds for row in estimate_times(OpTrace(rows), GPUS["H200"], Scale()))


MAKES = {"rand", "uniform_", "zeros", "arange", "repeat", "gt", "ones"}
"""Operators that make operands."""


def test_a_loss_of_each_row_takes_no_single_block():
    rows, classes = random(65536, 16), IDS % 16
    each, summed = (priced(lambda r=r: nll_loss(rows, classes, reduction=r)) for r in ("none", "sum"))
    assert summed > 10 * each


def test_blocks_of_threads_start_one_after_the_other_whatever_the_norm():
    rows = random(2**18, 16)
    for norm in (lambda: group_norm(rows, 1), lambda: torch.layer_norm(rows, (16,))):
        assert priced(norm) > 150


def test_each_of_all_distances_and_each_row_of_a_loss_is_a_block():
    assert priced(lambda: torch.cdist(random(512, 64), random(512, 64), p=1.0)) > 150
    assert priced(lambda: multi_margin_loss(random(65536, 16), IDS % 16)) > 35


def test_numbers_are_compared_with_few_one_by_one_and_sorted_for_many():
    few, many = (priced(lambda n=n: torch.isin(IDS, torch.arange(n))) for n in (32, 64))
    assert few > 130
    assert many == pytest.approx(priced(lambda: IDS.sort()), rel=0.5)


def test_all_that_goes_through_columns_has_a_price_for_them():
    assert SERIAL_US.keys() >= BY_COLUMNS


def test_one_number_that_is_taken_has_a_price():
    assert 2 < priced(lambda: random(64).take(torch.tensor([3]))) < 10


def test_no_operator_that_looks_for_places_costs_its_bytes_alone():
    schemas = [s for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::")]
    found = {s.name[6:] for s in schemas if {"values", "indices"} <= {value.name for value in s.returns}}
    assert {"sort", "topk", "mode", "cummax"} <= found <= EAGER.keys()


def test_what_one_algorithm_does_has_one_price_whatever_its_name():
    scans = SCANS - {"logcumsumexp"}
    for same in (SORTS - SELECTIONS - {"unique_consecutive"}, SELECTIONS, scans, INTERPOLATIONS, NEAREST):
        assert len({EAGER[name] for name in same}) == 1


def test_the_largest_of_nearly_all_numbers_cost_as_much_as_to_sort_them():
    read, places = Traffic(2**20, 2**22, 2**22), Traffic(2**20, 2**23, 2**23, True)
    found = lambda name, kept: total(
        OpTrace([Row(name, name, False, 1, output_numel=kept, tensors=[read, read, places])])
    )
    assert found("topk", 2**20) == found("topk", 2**20 - 9) == found("sort", 2**20) > found("topk", 2**19)


def test_a_softmax_along_another_dimension_takes_a_few_passes_and_a_scan_many():
    tensors = [Traffic(2**26, 2**28, 2**28), Traffic(2**26, 2**28, 2**28, True)]
    last, outer, scan = (
        total(OpTrace([Row(name, name, False, 1, output_numel=2**26, block=2**13, tensors=tensors)]))
        for name in ("_softmax", "_softmax:outer", "cumsum:outer")
    )
    assert 4 < outer / last < 30
    assert scan > 10 * last
