import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from drkernel.judge import Judge
from drkernel.judge.trusted.shrink import fit
from drkernel.tasks import load_tasks
from drkernel.tasks.generator import generate
from drkernel.tasks.handwritten import FOLDER, read_handwritten
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError

TASKS = read_handwritten()
NAMES = [task.id.removeprefix("handwritten/") for task in TASKS]
SUBMISSIONS = Path(__file__).parent / "submissions"


@pytest.fixture(scope="module")
def judge():
    with Judge(workers=1, secret=b"handwritten", timeout_s=30, memory_mb=2048) as judge:
        yield judge


def test_there_are_at_least_thirty_in_three_levels_with_ids_of_their_own():
    assert len({task.id for task in TASKS}) == len({task.source for task in TASKS}) == len(TASKS) >= 30
    counts = [sum(task.level == level for task in TASKS) for level in (1, 2, 3)]
    assert min(counts) >= 10
    assert [(task.level, task.info["problem_id"]) for task in TASKS] == [
        (level, number) for level, count in zip((1, 2, 3), counts, strict=True) for number in range(1, count + 1)
    ]


def test_they_are_loaded_like_all_tasks_and_are_never_trained_on():
    assert load_tasks("handwritten", split="test") == load_tasks("handwritten", split="all") == TASKS
    assert {task.level for task in load_tasks("handwritten", split="test", levels=[2, 3])} == {2, 3}
    assert {task.family for task in load_tasks("handwritten", split="test", families=["attention"])} == {"attention"}
    for split in ("train", "validation"):
        with pytest.raises(DrKernelError, match="handwritten: none with"):
            load_tasks("handwritten", split=split)


def test_the_folder_is_one_in_kernelbenchs_layout():
    tasks = load_tasks(str(FOLDER), split="all")
    assert [(task.level, task.info["problem_id"], task.info["name"]) for task in tasks] == [
        (task.level, task.info["problem_id"], task.info["name"]) for task in TASKS
    ]


@pytest.mark.parametrize("task", TASKS, ids=NAMES)
def test_each_is_a_plain_file_that_says_what_it_is(task):
    file = FOLDER / f"level{task.level}" / f"{task.info['problem_id']:02}_{task.info['name']}.py"
    head = file.read_text().split("\n", 1)[0]
    assert head == f'"""{task.family}: {task.info["about"]}"""'
    assert '"""' not in task.source and task.source.startswith("import ")
    assert len(task.source) < 2500
    constants = Reference(task).constants
    assert all(name.isupper() and re.search(rf"\b{name}\b", task.source) for name in constants)
    tree = ast.parse(task.source)
    names = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert {"Model", "get_inputs", "get_init_inputs"} <= names


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS, ids=NAMES)
def test_the_judge_accepts_each(judge, task):
    judge.check_task(task)


@pytest.mark.parametrize("task", TASKS, ids=NAMES)
def test_the_judge_can_shrink_each_and_different_sizes_stay_different(task):
    """Where they did not, a kernel that takes rows for columns would be right on the simulated device."""
    own = fit(replace(task, small=None))
    assert sum(tensor.numel() for tensor in inputs(own, own.small)) <= 2**16
    small = task.small or own.small
    for full, tried in zip(inputs(task), inputs(own, small), strict=True):
        assert len(set(tried.shape)) == len(set(full.shape)), small


@pytest.mark.parametrize("task", TASKS, ids=NAMES)
def test_the_reference_keeps_an_h200_busy_for_a_tenth_to_three_milliseconds(task):
    """By a roofline, which is the least: a top-2 of short rows takes several times as long."""
    with torch.device("meta"):
        reference, work = Reference(task), Work()
        arguments, model = reference.inputs(0), reference.model(0).eval()
        with FlopCounterMode(display=False) as flops, work:
            reference.forward(model, arguments)
    seconds = flops.get_total_flops() / 55e12 + work.bytes / 4.2e12 + 4e-6 * len(work.operators)
    assert 5e-5 < seconds < 3e-3
    assert sum(tensor.numel() for tensor in inputs(task)) < 2**28


@pytest.mark.slow
def test_none_is_a_composition_of_the_generator():
    generated = {operators(task) for split in ("train", "test") for task in generate(split, 150, 0)}
    assert len(generated) > 200
    assert not generated & {operators(fit(task)) for task in TASKS}


def inputs(task, constants=None):
    with torch.device("meta"):
        return [value for value in Reference(task, constants).inputs(0) if isinstance(value, torch.Tensor)]


def operators(task):
    """What a forward runs, in order."""
    reference, work = Reference(task, task.small), Work()
    arguments, model = reference.inputs(0), reference.model(0).eval()
    with work:
        reference.forward(model, arguments)
    return tuple(work.operators)


class Work(TorchDispatchMode):
    """Operators that are no views, and the bytes that they read and write."""

    def __init__(self):
        super().__init__()
        self.operators, self.bytes = [], 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if not function.is_view and "unsafe_view" not in str(function):
            self.operators.append(str(function))
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
            self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return result


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(SUBMISSIONS.glob("*.py")), ids=lambda path: path.stem)
def test_a_right_submission_in_triton_is_right(judge, path):
    task = next(task for task in TASKS if task.info["name"] == path.stem)
    verdict = judge.judge(task, path.read_text())
    assert (verdict.status, verdict.general) == ("ok", True), verdict.detail
    assert verdict.speedup > 1
