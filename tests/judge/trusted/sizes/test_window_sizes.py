"""How wide windows are is no size of data: a small task keeps it."""

import pytest

from drkernel.judge.trusted.sizes.shrink import fit
from drkernel.judge.trusted.sizes.window_sizes import windows, with_fixed_windows
from drkernel.tasks.module import Reference
from drkernel.types import Task

SOURCE = """
import torch
from torch import nn
batch, channels, side = 16, 16, 512
wide, é = (11, 9)
class Model(nn.Module):
    def __init__(self, channels, wide):
        super().__init__()
        self.conv = nn.Conv2d(channels, 12, wide, stride=2)
        self.pool = nn.MaxPool2d(é)
    def forward(self, x):
        return {result}
def get_inputs():
    return [torch.rand(batch, channels, side, side)]
def get_init_inputs():
    return [channels, wide]
"""


def task(result):
    return Task("windows", SOURCE.replace("{result}", result))


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ("self.pool(self.conv(x))", {"wide", "é"}),
        ("self.conv(x)", {"wide"}),
        ("self.pool(x)", {"é"}),
        ("nn.functional.adaptive_avg_pool2d(x, wide)", set()),  # a size of the output
        ("nn.functional.unfold(x, 16).sum(1) + wide", set()),  # as wide as the batch is large
        ("x.sum() if float(x.sum()) > 0 else x", set()),  # it does not run without data
    ],
)
def test_windows_are_what_a_forward_goes_through(result, found):
    assert windows(Reference(task(result))) == found


def test_a_small_task_has_windows_as_wide():
    small = fit(task("self.pool(self.conv(x))"))
    assert "wide" not in small.small and small.small["side"] < 128
    model = Reference(small, small.small).model(0)
    assert (model.conv.kernel_size, model.pool.kernel_size) == ((11, 11), 9)


def test_a_task_of_other_constants_is_the_same():
    plain = task("x + 1")
    assert with_fixed_windows(plain) is plain
