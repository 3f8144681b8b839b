"""What a forward gets as arguments: the same objects as last time, without what the last call left on them."""

import pytest
import torch

from drkernel.judge.boundary.call_areas import CallAreas
from drkernel.judge.boundary.shared_tensors import HostArea


@pytest.fixture
def given():
    """Called with one tensor, the argument that a forward gets."""
    areas = CallAreas(HostArea.create("in", 2**16), HostArea.create("out", 2**16))

    def as_argument(tensor: torch.Tensor) -> torch.Tensor:
        areas.inputs.clear()
        ((value,),) = (areas.values(*areas.inputs.lay([tensor])),)
        return value

    return as_argument


def test_a_tensor_at_the_same_place_is_the_same_object(given):
    first = given(torch.ones(8))
    assert given(torch.full((8,), 2.0)) is first
    assert first.tolist() == [2.0] * 8


def test_gradients_do_not_add_up_over_calls(given):
    for factor in (1.0, 2.0, 3.0):
        x = given(torch.full((8,), factor)).requires_grad_()
        (x * factor).sum().backward()
        assert x.grad.tolist() == [factor] * 8


@pytest.mark.parametrize("change", [lambda x: x.resize_(4), lambda x: x.t_(), lambda x: setattr(x, "data", x + 1)])
def test_an_object_that_a_call_has_changed_is_replaced(given, change):
    right = torch.arange(8.0).view(2, 4)
    change(given(right))
    assert torch.equal(given(right), right)
