"""How much larger the published task is than the small one, operator by operator."""

import pytest

from drkernel.judge.boundary.op_trace import Row
from drkernel.judge.devices.simulated.rescale import scale_of
from drkernel.judge.trusted.least_work import least_work
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

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


GROUPED = """
import torch
from torch import nn
ROWS, K, N, GROUPS = 8192, 2048, 1024, 8
class Model(nn.Module):
    def forward(self, x, w, offsets):
        ends, out = offsets.tolist(), x.new_empty(x.shape[0], w.shape[2])
        for e in range(w.shape[0]):
            out[ends[e]:ends[e + 1]] = x[ends[e]:ends[e + 1]] @ w[e]
        return out
def get_inputs():
    counts = torch.bincount(torch.randint(0, GROUPS, (ROWS,)), minlength=GROUPS)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return [torch.randn(ROWS, K), torch.randn(GROUPS, K, N), offsets]
def get_init_inputs():
    return []
"""


def test_a_reference_that_reads_offsets_back_grows_as_its_products_do():
    task = Task("grouped", GROUPED, small={"ROWS": 128, "K": 32, "N": 16})
    scale = scale_of(task)
    assert scale.flops == 64**3
    assert scale.of_tensor(128 * 32) == 64**2, "an input of which slices alone are read"
    assert scale.extents[128] == 64
    assert least_work(Reference(task), False).operations == 2 * 8192 * 2048 * 1024


def test_no_time_is_told_where_large_data_decide_what_is_multiplied():
    source = GROUPED.replace("ends, out = offsets", "ends, out = (offsets + (x.sum() > 0).long() * int(x.sum() > 0))")
    source = source.replace("8192, 2048", "2**18, 2048")
    with pytest.raises(DrKernelError, match="nothing tells how long it takes at the published sizes"):
        scale_of(Task("read back", source, small={"ROWS": 128, "K": 32, "N": 16}))


@pytest.mark.slow
def test_a_loop_of_operators_grows_no_more_than_one_dimension_of_an_input():
    scale = scale_of(Task("grouped", GROUPED, small={"ROWS": 128, "K": 32, "N": 32}))
    assert scale.bytes > 1000 and scale.longest == 64
    assert scale.of_calls(Row("exp", "exp", False, calls=16)) == 64
    assert scale.of_calls(Row("k", "k:1", True, calls=16)) == scale.bytes, "who launches them may go through all data"
    several = CONVERTED.replace("return [torch.rand(N, N).CONVERT()]", "return [[torch.rand(8)] * N]")
    several = several.replace("self.wide(x), self.narrow(x)", "[y + 1 for y in x]").replace("CONVERT", "half")
    assert scale_of(Task("list", several, small={"N": 64})).longest == 64
