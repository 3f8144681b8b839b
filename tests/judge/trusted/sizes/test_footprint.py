"""What a task needs of a GPU's memory, without running it."""

from __future__ import annotations

import pytest

from drkernel.judge.trusted.sizes import footprint
from drkernel.judge.trusted.sizes.footprint import GIB
from drkernel.tasks.module import Reference
from drkernel.types import Task

TASK = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2**15, 2**15){half}
    def forward(self, x):
        return self.linear(x){read}
def get_inputs():
    return [torch.rand(2**14, 2**15){half}]
def get_init_inputs():
    return []
"""


def found(half: str = "", read: str = "") -> footprint.Footprint:
    return footprint.of(Reference(Task("t", TASK.format(half=half, read=read))))


def test_gibibytes_are_found_without_any_of_them() -> None:
    needs = found()
    assert [round(size / GIB) for size in (needs.inputs, needs.outputs, needs.weights)] == [2, 2, 4] and needs.large


def test_modules_that_convert_themselves_are_known() -> None:
    needs = found(half=".half()")
    assert [round(size / GIB) for size in (needs.inputs, needs.outputs, needs.weights)] == [1, 1, 2]


def test_least_is_less_than_usual_and_the_numbers_are_said() -> None:
    needs = found()
    assert needs.judge < needs.least < needs.usual
    assert str(needs) == "inputs 2.0 GiB, outputs 2.0 GiB, weights 4.0 GiB"


@pytest.mark.parametrize("size", [2**6, 2**10])
def test_small_tasks_are_not_large(size: int) -> None:
    source = (
        TASK.format(half="", read=" + float(x.sum().item())").replace("2**15", str(size)).replace("2**14", str(size))
    )
    assert not footprint.of(Reference(Task("t", source))).large


def test_what_is_large_follows_from_the_memory_for_an_examination() -> None:
    source = TASK.format(half="", read="").replace("2**15", "2**12").replace("2**14", "2**14 + 2**13")
    sizes = {gib: footprint.large_from(gib * GIB) for gib in (12, 40, 70)}
    needs = {gib: footprint.of(Reference(Task("t", source)), size) for gib, size in sizes.items()}
    assert round((needs[12].inputs + needs[12].outputs + needs[12].weights) / 2**20) == 832
    assert [needs[gib].large for gib in sizes] == [True, True, False]
