"""How much larger the published task is than the small one, operator by operator."""

import pytest

from drkernel.judge.devices.simulated.rescale import scale_of
from drkernel.types import Task

CONVERTED = """
import torch
from torch import nn
N = 4096
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(N, N), nn.Linear(N, 16)
        self.CONVERT()
    def forward(self, x):
        return self.wide(x), self.narrow(x)
def get_inputs():
    return [torch.rand(N, N).CONVERT()]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("convert", ["half", "bfloat16", "double"])
def test_products_of_a_reference_that_converts_itself_grow_each_by_its_own_factor(convert):
    scale = scale_of(Task(convert, CONVERTED.replace("CONVERT", convert), small={"N": 64}))
    wide, narrow = (("addmm", 64 * columns, 2.0 * 64 * 64 * columns) for columns in (64, 16))
    assert scale.operators == {wide: 64**3, narrow: 64**2}
