"""Which other sizes of inputs the model of the published shape takes."""

import pytest

from drkernel.judge.trusted.sizes import resized
from drkernel.tasks.module import Reference
from drkernel.types import Task

SOURCE = """
import torch
import torch.nn as nn
BATCH, WIDTH = 12, 16
class Model(nn.Module):
    def __init__(self, *told):
        super().__init__()
        self.linear = nn.Linear(WIDTH, 4)
        self.kept = None
    def forward(self, x):
        {first}
        return self.linear(x) {then}
def get_inputs():
    return [torch.randn(BATCH, WIDTH)]
def get_init_inputs():
    return [{told}]
"""


def sizes(first: str = "pass", then: str = "", told: str = "") -> list[int]:
    """Of the batch, in the references that are found."""
    task = Task("t", SOURCE.format(first=first, then=then, told=told))
    base = Reference(task)
    hidden = [Reference(task, {"BATCH": 13, "WIDTH": 19}), Reference(task, {"BATCH": 7, "WIDTH": 9})]
    found = resized.references(base, base, hidden, 0)
    assert all(reference.constants["WIDTH"] == 16 for reference in found)
    return [reference.constants["BATCH"] for reference in found]


def test_a_batch_is_larger_and_smaller_and_what_weights_have_stays():
    assert sizes() == [13, 7, 6]


def test_what_the_constructor_is_told_stays():
    assert sizes(told="BATCH") == []


@pytest.mark.parametrize("first", ["self.kept = self.kept or x.shape[0]", "self.kept = x.shape[0]"])
def test_a_reference_that_keeps_a_size_itself_is_asked_at_none(first):
    assert sizes(first, "/ self.kept") == ([] if "or" in first else [13, 7, 6])


def test_a_model_that_takes_one_size_alone_is_asked_at_none():
    assert sizes("x = x.view(12, -1)") == []


def test_loops_go_round_as_often_as_at_the_sizes_that_are_asked_otherwise():
    """Who unrolls a loop is wrong at small sizes already where it goes round less often there."""
    loop = "for _ in range(WIDTH):\n            x = x.cos()"
    task = Task("t", SOURCE.format(first=loop, then="", told="").replace("WIDTH = 12, 16", "WIDTH = 12, 64"))
    base = Reference(task, {"WIDTH": 16})
    found = resized.references(base, base, [Reference(task, {"BATCH": 13, "WIDTH": 16})], 0)
    assert [reference.constants["BATCH"] for reference in found] == [13, 6]
