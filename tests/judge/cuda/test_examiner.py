"""A GPU whose memory gives out, which is the fault of neither task nor submission. Without a GPU."""

from __future__ import annotations

import pytest
import torch

from drkernel.judge.cuda import desk
from drkernel.judge.cuda.examiner import room
from drkernel.judge.cuda.turns import Crowded, Unwell
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

FULL = "CUDA out of memory. Tried to allocate 9 GiB. GPU 0 has 1 GiB of which 3 MiB is free. Process 7 has 1 GiB."
GREEDY = f"""
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x

def get_inputs():
    raise torch.OutOfMemoryError("{FULL}")

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(("sole", "found"), [(False, Crowded), (True, Unwell)])
def test_a_full_gpu_is_not_held_against_the_task(sole, found):
    with pytest.raises(found, match=r"^no room is left on the GPU: CUDA out .* 3 MiB is free\.$"), room(sole):
        Reference(Task("greedy", GREEDY)).inputs(0)


def test_areas_that_do_not_fit_leave_nothing_behind(monkeypatch):
    left = []

    class Area:
        @staticmethod
        def make(size: int):
            if len(left) == 2:
                raise torch.OutOfMemoryError(FULL)
            left.append(size)
            return Area()

        def close(self) -> None:
            left.pop()

    monkeypatch.setattr(desk, "DeviceArea", Area)
    with pytest.raises(torch.OutOfMemoryError):
        desk.areas(512)
    assert not left


def test_other_faults_of_a_task_stay_its_own():
    with pytest.raises(DrKernelError, match="task broken: line 9, get_inputs: ValueError"), room(sole=False):
        Reference(Task("broken", GREEDY.replace("torch.OutOfMemoryError", "ValueError"))).inputs(0)
