"""The reference and the submission multiply as the task's precision allows; fp64 and noise never in TF32."""

from __future__ import annotations

import pytest
import torch

from drkernel.judge.boundary import tf32
from drkernel.judge.trusted.cases import cases, reference_model
from drkernel.tasks.module import Reference
from drkernel.types import Task


def allowed() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.fixture(autouse=True)
def kept():
    with tf32.allowing(False):
        yield


@pytest.mark.parametrize(("precision", "expected"), [("ieee", False), ("tf32", True), ("low", True)])
def test_work_on_a_task_is_done_as_its_precision_allows_and_nothing_stays(precision, expected):
    assert tf32.as_allowed_by(precision, allowed) == (expected, expected)
    assert allowed() == (False, False)


def test_an_error_leaves_nothing_allowed():
    with pytest.raises(ZeroDivisionError):
        tf32.as_allowed_by("tf32", lambda: 1 / 0)
    assert allowed() == (False, False)


def test_only_the_reference_in_its_own_precision_multiplies_in_tf32():
    source = """
import torch
from torch import nn
seen = []
class Model(nn.Module):
    def forward(self, x):
        seen.append((x.dtype, torch.backends.cuda.matmul.allow_tf32))
        return x @ x
def get_inputs():
    return [torch.rand(16, 16)]
def get_init_inputs():
    return []
"""
    model = reference_model.build(Reference(Task("t", source, precision="tf32")), 0)
    given = model.reference.task, model, model.reference.inputs(0), False, 0
    tf32.as_allowed_by("tf32", cases.expected_outputs, *given)
    seen = model.reference._namespace["seen"]
    assert seen[0] == (torch.float32, True) and len(seen) > 2
    assert not any(allow for _, allow in seen[1:])
