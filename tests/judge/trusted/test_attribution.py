"""What may differ between two calls of one submission."""

from __future__ import annotations

import pytest

from drkernel.judge.boundary.op_trace import OpTrace, Row
from drkernel.judge.trusted.attribution import difference

KERNEL, OTHER = Row("double", "double:8", True, 1, 64), Row("halve", "halve:20", True, 1, 64)
NEVER_RAN = Row("halve", "halve:20", True, 1, 0)
TWICE = Row("double", "double:8", True, 2, 128)
PRODUCT, COPY = Row("mm", "mm", False, 1), Row("copy_", "copy_", False, 1)


@pytest.mark.parametrize(
    ("usual", "found", "said"),
    [
        ([KERNEL, PRODUCT], [KERNEL, PRODUCT], ""),
        ([KERNEL], [TWICE, COPY], ""),
        ([KERNEL, PRODUCT], [KERNEL], ""),
        ([KERNEL, OTHER], [KERNEL], "leaves out halve:20"),
        ([KERNEL, OTHER], [KERNEL, NEVER_RAN], "leaves out halve:20"),
        ([KERNEL], [KERNEL, PRODUCT], "adds mm"),
        ([KERNEL], [PRODUCT], "leaves out double:8"),
    ],
)
def test_a_call_may_leave_out_operators_and_add_kernels_and_copies(usual, found, said):
    assert difference(OpTrace(usual), OpTrace(found)) == said
