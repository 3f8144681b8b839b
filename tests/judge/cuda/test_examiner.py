"""An examiner's parts without a GPU: the processes of one submission, and memory that gives out."""

from __future__ import annotations

import json

import pytest
import torch

from drkernel.judge.cuda import desk
from drkernel.judge.cuda.examiner import Runners, Unwell, room
from drkernel.judge.cuda.turns import Crowded
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task


class Process:
    ended = 0

    def end(self) -> str:
        self.ended += 1
        return ""


class Pool:
    def __init__(self, path):
        self.path, self.made = path, []

    def take(self, memory):
        folder = self.path / f"runner-{len(self.made)}"
        (folder / "shared").mkdir(parents=True)
        self.made.append(Process())
        return self.made[-1], folder


def test_the_next_process_finds_the_kernels_and_the_one_before_is_dead(tmp_path):
    kernels = tmp_path / "kernels"
    for name in ("own", "shared"):
        (kernels / name).mkdir(parents=True)
        (kernels / name / "__grp__kernel.json").write_text(json.dumps({"child_paths": {"a.ptx": "elsewhere/a.ptx"}}))
    dying, pool = [], Pool(tmp_path)
    runners = Runners(pool, 0.5, dying)
    runners.adopt(kernels)
    first, before = runners.process, runners.folder
    assert runners.change() is runners.process is pool.made[1] is not first
    assert dying == [first] and (first.ended, runners.process.ended) == (1, 0) and not before.exists()
    index = json.loads((runners.folder / "own" / "__grp__kernel.json").read_text())
    assert index == {"child_paths": {"a.ptx": str(runners.folder / "own" / "a.ptx")}}
    assert not list((runners.folder / "shared").iterdir()), "what all runners share was replaced"
    runners.end()
    assert dying == pool.made and [process.ended for process in pool.made] == [1, 1]


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
