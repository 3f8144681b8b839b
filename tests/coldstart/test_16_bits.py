"""Generated tasks of 16 bits: fp32 tasks stay as they are, and each new one has an answer that the judge takes."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from drkernel.coldstart.solutions import solutions
from drkernel.judge import Judge
from drkernel.tasks import generate, load_tasks
from drkernel.tasks.generators.operators.families import DTYPES, FAMILIES, FAMILIES_OF_16_BITS
from drkernel.tasks.module import Reference
from drkernel.tasks.precision import has_16_bits
from drkernel.types import DrKernelError

NARROW = DTYPES[1:]


def test_float32_tasks_are_the_same_whichever_others_lie_between_them():
    mixed = generate("train", 60, 3, dtypes=DTYPES)
    single = [task for task in mixed if "dtype" not in task.info]
    assert single == generate("train", len(single), 3)
    assert {task.precision for task in single} == {"ieee"} and 10 < len(single) < 30


def test_shares_follow_how_often_a_dtype_is_named():
    counts = Counter(
        task.info.get("dtype", "float32")
        for task in generate("test", 200, 0, dtypes=["float32", "float32", "float32", "bfloat16"])
    )
    assert 0.15 < counts["bfloat16"] / 200 < 0.35 and counts["float16"] == 0


@pytest.mark.parametrize("dtype", NARROW)
def test_inputs_weights_and_outputs_have_the_dtype(dtype):
    for task in generate("train", 2 * len(FAMILIES_OF_16_BITS), 0, dtypes=[dtype]):
        reference = Reference(task, task.small)
        model, inputs = reference.model(0), reference.inputs(0)
        floats = [t for t in (*inputs, *model.parameters()) if t.is_floating_point()]
        found = {t.dtype for t in (*floats, reference.forward(model, inputs))}
        assert found == {getattr(torch, dtype)}, task.source
        assert task.precision == "low" and has_16_bits(task)
        assert task.family in FAMILIES_OF_16_BITS


@pytest.fixture(scope="module")
def judge():
    with Judge(device="simulated", workers=1, secret=b"a secret of the tests") as judge:
        yield judge


@pytest.mark.slow
@pytest.mark.xdist_group("16 bits")  # one judge
@pytest.mark.parametrize("dtype", NARROW)
def test_each_task_has_a_right_answer_and_refused_ones(judge, dtype):
    tasks = generate("validation", len(FAMILIES_OF_16_BITS), 0, dtypes=[dtype])
    assert len(tasks) >= 10
    asked = [(task, s) for task in tasks for s in solutions(task, 1) if s.kind in ("fused", "hack", "mistaken")]
    pending = [(task, solution, judge.submit(task, solution.source)) for task, solution in asked]
    verdicts = [(task, solution, future.result()) for task, solution, future in pending]
    for task, solution, verdict in verdicts:
        if solution.kind == "fused":
            assert verdict.ok and verdict.evidence["precision"] == "low", (task.id, verdict.detail, solution.source)
        if solution.kind == "hack":
            assert not verdict.ok, task.id
    refused = [not verdict.ok for _, solution, verdict in verdicts if solution.kind == "mistaken"]
    assert sum(refused) > 0.9 * len(refused)


def test_right_answers_add_up_in_fp32():
    for task in generate("train", 40, 1, ["layer_norm", "softmax"], NARROW):
        fused = next(s.source for s in solutions(task) if s.kind == "fused")
        assert "v = tl.load(x_ptr + i, mask=m, other=0.0).to(tl.float32)" in fused


def test_unknown_dtypes_and_families_without_16_bits_are_named():
    with pytest.raises(DrKernelError, match=r"tasks\.dtypes: found 'fp16', expected some of float32, float16"):
        generate("train", 1, 0, dtypes=["float32", "fp16"])
    with pytest.raises(DrKernelError, match=r"tasks\.dtypes: found none"):
        generate("train", 1, 0, dtypes=[])
    with pytest.raises(DrKernelError, match="none of loss has bfloat16 tasks; these have: elementwise"):
        generate("train", 1, 0, ["loss"], ["bfloat16"])
    with pytest.raises(DrKernelError, match=r"tasks\.dtypes is for generated tasks; those from handwritten"):
        load_tasks("handwritten", split="test", dtypes=["float16"])
    assert set(FAMILIES_OF_16_BITS) < set(FAMILIES)
