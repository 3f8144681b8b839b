"""Written tasks, and variants of one."""

import ast
import random

import pytest

from drkernel.policy.canonical import canonical
from drkernel.tasks import load_tasks, written
from drkernel.tasks.written import variants
from drkernel.types import DrKernelError, Task

SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, 96)

    def forward(self, x):
        x = self.layer(x)
        x = F.relu(x)
        y = x.sum(dim=1) * 0.5
        return y

def get_inputs():
    return [torch.randn(8, 48, 32)]

def get_init_inputs():
    return [32]
"""


def changed(edit, seeds=range(40)):
    """What an edit makes of SOURCE, by seed."""
    found = []
    for seed in seeds:
        tree = ast.parse(SOURCE)
        edit(tree, random.Random(seed))
        found.append(ast.unparse(ast.fix_missing_locations(tree)))
    return found


def test_sizes_that_are_equal_stay_equal():
    for source in changed(variants._sizes):
        inputs, arguments = source.partition("def get_inputs")[2].split("def get_init_inputs")
        assert (
            arguments.partition("[")[2].partition("]")[0]
            == inputs.partition("randn(")[2].split(", ")[2].partition(")")[0]
        )
    assert len(set(changed(variants._sizes))) > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (variants._numbers, ("* 0.05", "* 1.0", "* 5.0")),
        (variants._arguments, ("dim=0", "dim=2")),
        (variants._operators, ("F.gelu(x)", "x.amax(dim=1)", "x.mean(dim=1)")),
        (variants._further_step, ("x = F.softmax(x, dim=1)", "y = y * y", "result = y\n        return torch.")),
    ],
)
def test_each_edit_makes_what_it_says(edit, found):
    made = changed(edit, range(1500))
    assert all(any(text in source for source in made) for text in found)


def test_a_step_less_is_one_line_less():
    assert {len(source.splitlines()) for source in changed(variants._step_less)} <= {
        len(ast.unparse(ast.parse(SOURCE)).splitlines()) - 1,
        len(ast.unparse(ast.parse(SOURCE)).splitlines()),
    }
    assert any("F.relu" not in source for source in changed(variants._step_less))


def test_a_seed_names_its_variants_and_half_of_them_run():
    tasks = [Task("a", SOURCE), Task("b", SOURCE.replace("sum", "mean"))]
    draw = lambda seed: [task for task, _ in zip(variants.variants(tasks, seed), range(60), strict=False)]
    assert draw(1) == draw(1) != draw(2)
    running = [task for task in draw(1) if canonical(task.source).text.startswith("def forward")]
    assert len(running) >= 30
    assert len({task.id for task in running}) > 20


def test_a_model_that_inherits_its_forward_varies_in_what_it_holds():
    source = "class Model(nn.Sequential):\n    def __init__(self): super().__init__(nn.Linear(64, 64), nn.ReLU())\n"
    found = {variants.variant(source, random.Random(seed)) for seed in range(40)}
    assert len(found) > 5


@pytest.mark.slow
def test_written_tasks_have_splits_and_families():
    assert {split: len(load_tasks("written", split=split)) for split in ("train", "validation", "test")} == {
        "train": 1887,
        "validation": 183,
        "test": 100,
    }
    assert {task.family for task in load_tasks("written", split="test")} == {"mixed"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "earlier", "family"),
    [("written_1670", "written_850", "networks"), ("written", "written_1670", "architectures")],
)
def test_a_generator_varies_the_tasks_of_its_authors(name, earlier, family):
    tasks = load_tasks("generated", split="train", count=4, generator=name, families=[family])
    assert all(task.id.startswith(f"written/{family}/") for task in tasks)
    with pytest.raises(DrKernelError, match=f"unknown task family '{family}'"):
        load_tasks("generated", split="train", count=4, generator=earlier, families=[family])


@pytest.mark.slow
def test_a_generator_varies_them():
    tasks = load_tasks("generated", split="train", count=4, generator="written_850", families=["numerical"])
    assert tasks == load_tasks("generated", split="train", count=4, generator="written_850", families=["numerical"])
    assert all(task.id.startswith("written/numerical/") for task in tasks)
    with pytest.raises(DrKernelError, match="none of split test is of families numerical"):
        next(written.stream("test", 0, ["numerical"]))
