"""What eager PyTorch takes on the modelled H200, beside what was measured on a real one."""

import pytest

from drkernel.judge.boundary.op_trace import OpTrace, Row
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


@pytest.mark.parametrize("name", ["lstm", "native_layer_norm", "mm"])
def test_a_runner_that_says_zero_of_everything_makes_no_error(name):
    assert total(OpTrace([Row(name, name, False)])) >= 0
