import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

import drkernel
from drkernel.coldstart.solutions import solutions
from drkernel.coldstart.solutions_wrong import EDITS
from drkernel.tasks.generators import generate
from drkernel.tasks.generators.operators.families import FAMILIES
from drkernel.types import DrKernelError, Task

pytestmark = pytest.mark.xdist_group("solutions")

RIGHT = ("lazy", "partial", "fused")


def _grade(device: str, split: str, count: int, wrong: int) -> list[dict]:
    source = str(Path(drkernel.__file__).parents[1])
    interpret = "1" if device == "cpu" else "0"
    environment = {**os.environ, "TRITON_INTERPRET": interpret, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("grade.py")), device, split]
    done = subprocess.run(
        [*command, str(count), "11", str(wrong)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def graded() -> list[dict]:
    """Two tasks of every family, every answer and every mistake, executed by Triton's interpreter."""
    return _grade("cpu", "test", 2 * len(FAMILIES), len(EDITS))


@pytest.mark.slow
def test_right_answers_agree_with_the_reference_on_its_shape_and_on_another(graded):
    wrong = [row for row in graded if row["kind"] in (*RIGHT, "hack") and not row["error"] < 2e-6]
    assert not wrong
    assert {row["family"] for row in graded if row["kind"] == "fused"} == set(FAMILIES)


@pytest.mark.slow
def test_mistakes_fail_or_are_far_off(graded):
    mistakes = [row for row in graded if row["kind"] == "mistaken"]
    assert not [row for row in mistakes if row["error"] < 1e-4]
    assert {row["note"] for row in mistakes} == set(EDITS), "a mistake that no task of the sample can hold"


@pytest.mark.slow
def test_hacks_do_not_need_their_kernel_and_fused_answers_do(graded):
    assert all(row["without_kernel"] < 2e-6 for row in graded if row["kind"] == "hack")
    assert not [row for row in graded if row["kind"] == "fused" and row["without_kernel"] < 1e-4]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_right_answers_compile_and_agree_on_a_gpu():
    rows = _grade("cuda", "validation", 2 * len(FAMILIES), 0)
    assert not [row for row in rows if not row["error"] < 1e-5]


def test_solutions_are_the_same_at_each_call_and_differ_from_one_another():
    for task in generate("train", 24, 1):
        found = solutions(task)
        assert found == solutions(task)
        assert len({s.source for s in found if s.kind != "lazy"}) == len([s for s in found if s.kind != "lazy"])


def test_every_task_has_one_fused_answer_and_most_have_a_lazy_one():
    kinds = [Counter(s.kind for s in solutions(task)) for task in generate("train", 96, 2)]
    assert all(count["fused"] == 1 and count["mistaken"] == 4 and count["hack"] == 1 for count in kinds)
    assert sum(count["lazy"] for count in kinds) > 0.8 * len(kinds)


def test_stage_lines_do_not_depend_on_their_neighbours():
    lines: dict[str, set[str]] = {}
    for task in generate("train", 400, 3, ["elementwise", "softmax", "column_reduction", "pool"]):
        source = solutions(task, 0)[-2].source
        for name in ("relu", "sigmoid", "softsign", "square"):
            if name in task.info["composition"]:
                kernel = {line.strip() for line in source.splitlines()}
                lines[name] = lines.get(name, kernel) & kernel
    expected = {"relu": "v = tl.maximum(v, 0.0)", "sigmoid": "v = tl.sigmoid(v)", "square": "v = v * v"}
    assert all(line in lines[name] for name, line in expected.items())


def test_answers_hold_no_size_of_the_task():
    for task in generate("train", 96, 4):
        sizes = {value for value in task.info["shape"].values() if value > 1024}
        for solution in solutions(task):
            assert not sizes & {int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.])", solution.source)}


def test_answers_are_short_enough_for_a_small_policy():
    lengths = sorted(len(s.source) for task in generate("train", 240, 5) for s in solutions(task) if s.kind in RIGHT)
    assert lengths[len(lengths) // 2] < 900
    assert lengths[-1] < 1600


def test_only_generated_tasks_have_solutions():
    with pytest.raises(DrKernelError, match="kernelbench/level1/19"):
        solutions(Task("kernelbench/level1/19", "class Model: pass"))
