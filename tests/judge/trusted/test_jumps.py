"""Where rounding decides what is positive or largest, a right output may differ much in few places; and where all that
is left is rounding, its errors look like those of lower precision."""

from __future__ import annotations

import pytest
import torch

from drkernel.judge.trusted.lowering import Lowering
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.judge.trusted.tolerance import Expected
from tests.judge.expectations import expected, right


@pytest.mark.parametrize("seed", range(8))
def test_what_hangs_on_a_choice_may_jump_where_rounding_chooses(seed):
    """As the gradients of a maximum and of a ReLU do: a row that one run with noise keeps, another one drops."""
    x = torch.randn(512, 64, generator=torch.Generator().manual_seed(seed))
    x[7, 0] -= x[7].double().sum().float()  # a mean of nearly nothing
    keep = lambda x: torch.where(x.mean(-1, keepdim=True) > 0, x, torch.zeros_like(x))
    for row, may in ((7, True), (8, False)):
        other = keep(x)
        other[row] = x[row] - other[row]
        assert right(expected(keep, x, runs=1), other) == may


def test_a_choice_is_no_error_of_lower_precision():
    """One number of 4,096 is off by as much as lower precision would make it jump, and all else is right."""
    exact, draw = torch.randn(64, 64, dtype=torch.float64), torch.Generator().manual_seed(1)
    errors = torch.randn(64, 64, dtype=torch.float64, generator=draw) * 1e-7
    lowered = exact + errors
    lowered[5, 6] += 0.5
    found, jumped = Lowering("TF32", lowered, exact, 0), exact.clone()
    jumped[5, 6] += 0.5
    assert not found.explains(jumped) and found.explains(lowered)


def test_what_the_reference_itself_would_be_refused_for_tells_nothing():
    """Gradients of attention's scores nearly cancel: what rounding leaves has one direction, whatever it comes from."""
    exact, draw = torch.zeros(20, 20, dtype=torch.float64), torch.Generator().manual_seed(2)
    left = torch.outer(*(torch.randn(20, generator=draw, dtype=torch.float64) for _ in range(2)))
    noise = [exact + torch.randn((), generator=draw) * left for _ in range(4)]
    for rounded, refused in ((left, None), (exact, "wrong_values")):
        found = Expected(exact, rounded.float(), noise, "ieee", [("TF32", exact + 1.5 * left)])
        problem = found.check(OutputTensor((0.9 * left).float()))
        assert (problem and problem.reason) == refused
