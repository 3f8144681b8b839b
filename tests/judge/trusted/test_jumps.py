"""Where rounding decides what is positive or largest, a right output may differ much in few places; and where all that
is left is rounding, its errors look like those of lower precision."""

from __future__ import annotations

import pytest
import torch

from drkernel.judge.trusted.comparison.lowering import Lowering
from drkernel.judge.trusted.comparison.tolerance import Expected
from drkernel.judge.trusted.outputs import OutputTensor
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


def test_errors_of_lower_precision_are_seen_beside_the_jumps_that_it_would_make():
    """Who finds out in fp32 what is positive, and multiplies in lower precision then, has its errors without jumps."""
    draw = torch.Generator().manual_seed(3)
    exact = torch.randn(256, 64, dtype=torch.float64, generator=draw)
    errors = 1e-6 * torch.randn(256, 64, dtype=torch.float64, generator=draw)
    lowered = exact + errors
    lowered[::50] += torch.randn(6, 64, dtype=torch.float64, generator=draw)
    found = Lowering("TF32", lowered, exact, 0)
    assert found.explains(exact + errors) and found.explains(exact + 0.5 * errors)
    others = 1e-6 * torch.randn(256, 64, dtype=torch.float64, generator=draw)
    assert not found.explains(exact + others)


def test_a_verdict_does_not_hang_on_what_was_asked_before():
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(4))
    triple, noise = (lambda x: x * 3.0), 1e-5 * torch.randn(64, 64, dtype=torch.float64)
    far = triple(x) + (torch.arange(64) % 3 == 0) * 1e-5
    near = triple(x).clone()
    near[0, 0] += 1e-5
    asked_before, alone = (expected(triple, x) for _ in range(2))
    for each in (asked_before, alone):
        each.set_more_noise(lambda: [x.double() * 3.0 + noise])
    assert right(asked_before, near)
    assert right(asked_before, far) == right(alone, far)


def test_outputs_that_are_rounding_alone_excuse_nothing_in_others():
    x = torch.rand(64, 64, generator=torch.Generator().manual_seed(5))
    of = lambda x: (x * 3.0, (x - x.mean()).sum())
    found = expected(of, x)
    assert not found.well_conditioned and found.leave_out_vague()
    both = lambda factor, total: found.check((OutputTensor(x * factor), OutputTensor(torch.tensor(total)))) is None
    assert both(3.0, 123.0) and not both(3.01, 0.0)
    assert not expected(lambda x: (x - x.mean()).sum(), x).leave_out_vague()
