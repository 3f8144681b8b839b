"""What a dry run of a submission's host code adds to the trace of its small run."""

import pytest

from drkernel.judge.boundary.op_trace import OpTrace, Row, Traffic
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.devices.simulated.grids import joined
from drkernel.judge.devices.simulated.rescale import Scale
from drkernel.judge.devices.simulated.roofline import estimate_times

SCALE = Scale(64.0, called={"add": 64})


def kernel(calls, name="step", programs=1):
    return Row(name, name, True, calls, programs * calls, tensors=[Traffic(1000, 4000, 4000)])


def operator(calls, name="addcmul"):
    return Row(name, name, False, calls, tensors=[Traffic(1000, 4000, 4000)])


def price(trace):
    return sum(row.microseconds for row in estimate_times(trace, GPUS["H200"], SCALE))


@pytest.mark.parametrize("row", [kernel, operator])
def test_calls_that_a_dry_run_leaves_out_grow_as_the_data_do(row):
    small = OpTrace([row(16)])
    told = lambda *rows: price(joined(small, OpTrace(list(rows)), False))
    assert told() == told(row(15)) == told(row(1024)) == price(small) > 30 * told(row(16))
    assert told(row(2048)) > 1.5 * told(row(1024))


def test_operators_that_the_reference_calls_as_often_grow_as_its_own():
    assert price(OpTrace([operator(64, "add")])) == 2 * price(OpTrace([operator(32, "add")]))
    assert price(OpTrace([operator(65, "add")])) > 30 * price(OpTrace([operator(64, "add")]))


def test_what_only_the_full_size_has_is_priced():
    small = OpTrace([kernel(1)])
    told = lambda *rows: price(joined(small, OpTrace([kernel(1), *rows]), False))
    assert told(kernel(1000, "other")) > 1000 * GPUS["H200"].kernel_us
    assert told(kernel(1000, "other", programs=10**6)) > 2 * told(kernel(1000, "other"))
    assert told(Row("tanh", "tanh", False, 1, tensors=[Traffic(10**9, 4 * 10**9, 4 * 10**9)])) > 800


def test_an_operator_has_the_dearer_price_of_both_runs():
    of = lambda size: OpTrace([Row("tanh", "tanh", False, 1, tensors=[Traffic(size, 4 * size, 4 * size)])])
    both = price(joined(of(10**7), of(10**7), False))
    assert both == price(of(10**7)) == pytest.approx(price(joined(of(10**6), of(64 * 10**7), False)), rel=0.01)
