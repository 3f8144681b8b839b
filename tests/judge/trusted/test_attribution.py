"""What may differ between two calls of one submission."""

from __future__ import annotations

import pytest

from drkernel.judge.boundary.op_trace import OpTrace, Row, Traffic
from drkernel.judge.trusted.attribution import ReferenceCost, attribute, difference, most_explained_us
from drkernel.types import KernelTime

KERNEL, OTHER = Row("double", "double:8", True, 1, 64), Row("halve", "halve:20", True, 1, 64)
NEVER_RAN = Row("halve", "halve:20", True, 1, 0)
TWICE = Row("double", "double:8", True, 2, 128)
PRODUCT, COPY = Row("mm", "mm", False, 1), Row("copy_", "copy_", False, 1)
SOFTMAX, NORM = Row("_softmax:outer", "s", False, 1), Row("native_batch_norm:training", "n", False, 1)
LARGE = Row("mm", "mm", False, 1, tensors=[Traffic(2**20, 2**22, 2**22)])
BRIEF = [Row("_softmax", "_softmax", False, 1), Row("native_batch_norm", "native_batch_norm", False, 1)]


@pytest.mark.parametrize(
    ("usual", "found", "said"),
    [
        ([KERNEL, PRODUCT], [KERNEL, PRODUCT], ""),
        ([KERNEL], [TWICE, COPY], ""),
        ([KERNEL, PRODUCT], [KERNEL], ""),
        ([KERNEL, LARGE], [KERNEL], "leaves out mm"),
        ([KERNEL, LARGE], [KERNEL, PRODUCT], ""),
        ([KERNEL, OTHER], [KERNEL], "leaves out halve:20"),
        ([KERNEL, OTHER], [KERNEL, NEVER_RAN], "leaves out halve:20"),
        ([KERNEL], [KERNEL, PRODUCT], "adds mm"),
        ([KERNEL], [PRODUCT], "leaves out double:8"),
        ([KERNEL, SOFTMAX, NORM], [KERNEL, *BRIEF], ""),  # timed calls are recorded by name alone
        ([KERNEL, SOFTMAX], [KERNEL, *BRIEF], "adds native_batch_norm"),
    ],
)
def test_a_call_may_leave_out_small_operators_and_add_kernels_and_copies(usual, found, said):
    assert difference(OpTrace(usual), OpTrace(found)) == said


class OneMicrosecond:
    """A model by which every operator takes a microsecond."""

    def work_us(self, row):
        return 1.0


@pytest.mark.parametrize(
    ("ours", "most"),
    [
        ([KERNEL], 0.0),
        ([KERNEL, PRODUCT], 10.0),  # ten times what is modelled
        ([Row("_cudnn_rnn", "r", False, 1, output_numel=64)], 150.0),  # the reference's own, and half of it more
        ([Row("_cudnn_rnn", "r", False, 1, output_numel=8)], 10.0),  # on fewer elements
        ([Row("_cudnn_rnn", "r", False, 2, output_numel=64)], 10.0),  # oftener
        ([Row("_cudnn_rnn", "r", False, 1, output_numel=64, flops=1.0)], 10.0),  # of other work
    ],
)
def test_an_operator_of_the_reference_may_take_as_long_as_it_took_there(ours, most):
    theirs = OpTrace([Row("_cudnn_rnn", "r", False, 1, output_numel=64)])
    cost = ReferenceCost(theirs, OneMicrosecond(), 0.0)
    assert most_explained_us(cost, OpTrace(ours), [KernelTime("_cudnn_rnn", 1, 100.0, False)], 10.0) == most


@pytest.mark.parametrize(
    ("ours", "most"),
    [
        ([Row("cummax:outer", "c", False, 1, output_numel=64)], 150.0),  # one of two calls is kept
        ([Row("cummax", "c", False, 1, output_numel=64), Row("cummax:outer", "c", False, 1, output_numel=64)], 150.0),
        ([Row("cummax:outer", "c", False, 2, output_numel=64)], 10.0),  # twice what was done once
        ([Row("cummax:outer", "c", False, 1, output_numel=64, block=8)], 10.0),  # along a shorter dimension
    ],
)
def test_a_kept_call_of_several_may_take_as_long_as_all_took(ours, most):
    theirs = OpTrace([Row(name, "c", False, 1, output_numel=64) for name in ("cummax", "cummax:outer")])
    cost = ReferenceCost(theirs, OneMicrosecond(), 0.0)
    assert most_explained_us(cost, OpTrace(ours), [KernelTime("cummax", 2, 100.0, False)], 10.0) == most


def test_an_operator_along_another_dimension_replaces_nothing():
    theirs, ours = (OpTrace([Row(name, "c", False, 1, output_numel=64)]) for name in ("cummax:outer", "cummax"))
    assert attribute(ReferenceCost(theirs, OneMicrosecond(), 0.0), ours, []).nothing_replaced
