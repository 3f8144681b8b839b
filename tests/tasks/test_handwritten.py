import ast
import re
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from drkernel.judge import Judge
from drkernel.judge.trusted.sizes.shrink import fit
from drkernel.tasks import load_tasks
from drkernel.tasks import test_source as evaluated_on
from drkernel.tasks.generators import generate
from drkernel.tasks.handwritten import FOLDER, read_handwritten
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError
from tests.tasks.shrunk import shrinking, shrunk

TASKS = read_handwritten()
NAMES = [task.id.removeprefix("handwritten/") for task in TASKS]
SUBMISSIONS = Path(__file__).parent / "submissions"
ANSWERED = sorted(str(path.relative_to(SUBMISSIONS).with_suffix("")) for path in SUBMISSIONS.glob("level*/*.py"))


judged = pytest.mark.xdist_group("handwritten")  # one judge prepares each task once


@pytest.fixture(scope="module")
def judge():
    with Judge(device="simulated", workers=1, secret=b"handwritten", timeout_s=30, host_memory_mib=2048) as judge:
        yield judge


def test_there_are_a_hundred_in_three_levels_with_ids_and_names_of_their_own():
    assert len({task.id for task in TASKS}) == len({task.source for task in TASKS}) == len(TASKS) == 100
    assert len({task.info["name"] for task in TASKS}) == len(TASKS)
    counts = [sum(task.level == level for task in TASKS) for level in (1, 2, 3)]
    assert counts == [40, 40, 20]
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


def test_one_half_is_to_decide_by_and_the_other_to_look_at_once():
    halves = [load_tasks(f"handwritten:{half}", split="test") for half in ("development", "final")]
    assert sorted(task.id for half in halves for task in half) == sorted(task.id for task in TASKS)
    for half, remainder in zip(halves, (1, 0), strict=True):
        assert [sum(task.level == level for task in half) for level in (1, 2, 3)] == [20, 20, 10]
        assert {task.info["problem_id"] % 2 for task in half} == {remainder}
    assert {task.info["half"] for task in halves[0]} == {"development"}
    assert {task.level for task in load_tasks("handwritten:final", split="all", levels=[3])} == {3}


def test_a_run_may_be_tested_on_one_half():
    assert evaluated_on("generated", "handwritten:development") == ("handwritten:development", "all")
    assert evaluated_on("handwritten:final", None) == ("handwritten:final", "test")
    with pytest.raises(DrKernelError, match=r"tasks\.eval_source: found 'handwritten:dev', expected handwritten, hand"):
        load_tasks("handwritten:dev", split="all")


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
    assert task.info["about"] not in task.source and task.source.startswith(("import ", "from "))
    assert len(task.source) < 2500
    constants = Reference(task).constants
    assert all(len(re.findall(rf"\b{name}\b", task.source)) > 1 for name in constants), "a size that nothing depends on"
    tree = ast.parse(task.source)
    names = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert {"Model", "get_inputs", "get_init_inputs"} <= names


@pytest.mark.slow
@judged
@pytest.mark.parametrize("task", TASKS, ids=NAMES)
def test_the_judge_accepts_each(judge, task):
    judge.check_task(task)


@pytest.mark.slow
@shrinking
@pytest.mark.parametrize("task", TASKS, ids=NAMES)
def test_the_judge_can_shrink_each_and_different_sizes_stay_different(task):
    """Where they did not, a kernel that takes rows for columns would be right on the simulated device."""
    own = shrunk(task.info["name"])
    assert sum(tensor.numel() for tensor in inputs(own, own.small)) <= 2**16
    small = task.small or own.small
    for full, tried in zip(inputs(task), inputs(own, small), strict=True):
        assert len(set(tried.shape)) >= len(set(full.shape)), small


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
@shrinking
def test_none_is_a_composition_of_the_generator():
    generated = {operators(task) for split in ("train", "test") for task in generate(split, 150, 0)}
    assert len(generated) > 200
    assert not generated & {operators(fit(task) if task.small else shrunk(task.info["name"])) for task in TASKS}


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


NOT_FASTER = {"level3/feature_pyramid", "level3/unrolled_gru"}
"""Whose kernels save what launches cost a host, which no judge counts."""


@pytest.mark.slow
@judged
@pytest.mark.parametrize("name", ANSWERED)
def test_a_good_answer_is_right_and_faster(judge, name):
    """What each earns: `python evaluate.py solutions=tests/tasks/submissions tasks=handwritten`."""
    task = TASKS[NAMES.index(name)]
    verdict = judge.judge(task, (SUBMISSIONS / f"{name}.py").read_text())
    assert (verdict.status, verdict.general) == ("ok", True), verdict.detail
    assert verdict.speedup > (0.6 if name in NOT_FASTER else 1)


def test_there_are_answers_to_tasks_of_all_levels_and_both_halves():
    answered = [TASKS[NAMES.index(name)] for name in ANSWERED]
    counts = [sum(task.level == level for task in answered) for level in (1, 2, 3)]
    assert all(count >= wanted for count, wanted in zip(counts, (10, 15, 5), strict=True)), counts
    assert sum(task.info["half"] == "development" for task in answered) >= 15
