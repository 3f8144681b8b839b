"""Small and hidden sizes are those at which the reference makes the calls that it makes at the published ones."""

from collections.abc import Iterator

import pytest

from drkernel.judge.trusted import prepare
from drkernel.judge.trusted.cases.cases import Seeds
from drkernel.judge.trusted.cases.plans import HIDDEN_SHAPES
from drkernel.judge.trusted.sizes import same_calls, shrink
from drkernel.judge.trusted.sizes.same_calls import are_same
from drkernel.tasks.module import Reference
from drkernel.types import Task

TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F
{constants}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {module}

    def forward(self, x):
        {forward}

def get_inputs():
    return [torch.randn({shape})]

def get_init_inputs():
    return []
"""
CHOOSES = {
    "a shortcut where two widths differ": TASK.format(
        constants="BATCH, WIDE, WIDER, SIDE = 32, 128, 256, 64",
        module="self.a = nn.Conv2d(WIDE, WIDER, 3, padding=1); self.b = nn.Conv2d(WIDE, WIDER, 1) if WIDE != WIDER "
        "else nn.Identity()",
        forward="return torch.relu(self.a(x) + self.b(x))",
        shape="BATCH, WIDE, SIDE, SIDE",
    ),
    "an odd image is padded": TASK.format(
        constants="BATCH, HEIGHT, WIDTH = 16, 224, 160",
        module="self.a = nn.Conv2d(3, 32, 3, padding=1)",
        forward="for _ in range(4):\n            x = F.pad(x, (0, x.shape[3] % 2, 0, x.shape[2] % 2)) "
        "if x.shape[2] % 2 or x.shape[3] % 2 else x\n            x = F.avg_pool2d(x, 2)\n        return self.a(x)",
        shape="BATCH, 3, HEIGHT, WIDTH",
    ),
    "long rows are summed in two steps": TASK.format(
        constants="BATCH, LENGTH = 128, 65536",
        module="pass",
        forward="return x.unflatten(1, (256, -1)).sum(2).cumsum(1)[:, -1] if x.shape[1] > 1024 else x.sum(1)",
        shape="BATCH, LENGTH",
    ),
}


@pytest.mark.parametrize("name", CHOOSES)
def test_what_a_task_chooses_by_its_sizes_is_chosen_at_small_ones(name):
    task = shrink.fit(Task("chooses", CHOOSES[name]))
    small = Reference(task, task.small)
    assert are_same(small)
    assert 16 * small.inputs(0)[0].numel() <= Reference(task).inputs(0)[0].numel()


@pytest.mark.parametrize("name", CHOOSES)
def test_what_a_task_chooses_by_its_sizes_is_chosen_at_hidden_ones(name):
    hidden = list(hidden_of(shrink.fit(Task("chooses", CHOOSES[name]))))
    assert hidden and all(map(are_same, hidden))


def hidden_of(task: Task) -> Iterator[Reference]:
    return prepare._hidden(
        task, Reference(task, task.small), Seeds(b"secret", task.digest), Reference(task), masked=False
    )


LOOP = TASK.format(
    constants="BATCH, STEPS, WIDTH = 32, 12, 48",
    module="self.a = nn.Linear(WIDTH, WIDTH)",
    forward="h = x[:, 0]\n        for t in range(x.shape[1]):\n            h = torch.tanh(self.a(h) + x[:, t])\n"
    "        return h",
    shape="BATCH, STEPS, WIDTH",
)


def test_how_often_a_loop_goes_round_may_follow_from_sizes():
    task = Task("loop", LOOP)
    other = Reference(task, {"STEPS": 5})
    assert are_same(other, loops=False) and not are_same(other)
    assert same_calls.published_calls(task).once == ("select", "mm", "add", "select", "add", "tanh")


def test_hidden_sizes_change_how_often_a_loop_goes_round_last():
    """Who unrolls a loop is right at the published sizes."""
    found = [reference.constants["STEPS"] for reference in hidden_of(shrink.fit(Task("loop", LOOP)))]
    changed = [steps != 12 for steps in found]
    assert changed == sorted(changed) and changed.count(False) >= HIDDEN_SHAPES


CHUNKS = TASK.format(
    constants="BATCH, LENGTH, CHUNK, WIDTH = 64, 512, 64, 256",
    module="pass",
    forward="h = 0\n        for part in x.split(CHUNK, dim=1):\n            h = torch.tanh(part.cumsum(1) + h)\n"
    "        return h",
    shape="BATCH, LENGTH, WIDTH",
)


@pytest.mark.parametrize("source", [LOOP, CHUNKS], ids=["steps", "chunks"])
def test_loops_go_round_as_often_at_small_sizes(source):
    task = shrink.fit(Task("loop", source))
    assert are_same(Reference(task, task.small))
