"""The processes of one submission: one at a time, ready when it comes, and each finds its compiled kernels."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections import deque
from types import SimpleNamespace

import pytest

from drkernel.judge.devices.cuda import runner_pool as module
from drkernel.judge.devices.cuda.gpu_lock import GpuUnhealthy
from drkernel.judge.devices.cuda.runner_pool import RunnerLease, RunnerPool, _WaitingRunner


class Process:
    ended, pid = 0, 1

    def __init__(self, ready_s: float = 0.0):
        self.activity = SimpleNamespace(set_own=lambda names: self.__setattr__("own", names))
        self.ready = time.monotonic() + ready_s

    def reply_ready(self, seconds: float) -> bool:
        time.sleep(max(0.0, min(seconds, self.ready - time.monotonic())))
        return time.monotonic() >= self.ready

    def end(self) -> str:
        self.ended += 1
        return ""


class Endless:
    def __init__(self, path):
        self.path, self.made, self.terminating = path, [], []

    def take(self, memory, products):
        folder = self.path / f"runner-{len(self.made)}"
        (folder / "shared").mkdir(parents=True)
        self.made.append(Process())
        return self.made[-1], folder


def test_the_next_process_finds_the_kernels_and_the_one_before_is_dead(tmp_path):
    kernels = tmp_path / "kernels"
    for name in ("own", "shared"):
        (kernels / name).mkdir(parents=True)
        (kernels / name / "__grp__kernel.json").write_text(json.dumps({"child_paths": {"a.ptx": "elsewhere/a.ptx"}}))
    pool = Endless(tmp_path)
    runners = RunnerLease(pool, 0.5)
    runners.adopt(kernels)
    first, before = runners.process, runners.folder
    assert first.own == {"kernel"}, "these names are the submission's, whoever runs them"
    assert runners.replace() is runners.process is pool.made[1] is not first
    assert pool.terminating == [first] and (first.ended, runners.process.ended) == (1, 0) and not before.exists()
    index = json.loads((runners.folder / "own" / "__grp__kernel.json").read_text())
    assert index == {"child_paths": {"a.ptx": str(runners.folder / "own" / "a.ptx")}}
    assert not list((runners.folder / "shared").iterdir()), "what all runners share was replaced"
    runners.end()
    assert pool.terminating == pool.made and [process.ended for process in pool.made] == [1, 1]


def test_what_others_are_building_is_not_copied_for_a_runner(tmp_path, monkeypatch):
    shared, link = tmp_path / "shared", module.os.link
    for path in ("KEY/cuda_utils.so", "KEY/.12.345", "activity.so", "tmp79b5z4_h/activity.so"):
        (shared / path).parent.mkdir(parents=True, exist_ok=True)
        (shared / path).write_text(path)

    def link_late(source, target):
        if source.endswith(".12.345"):
            module.os.unlink(source)  # another examiner has renamed it
        link(source, target)

    monkeypatch.setattr(module.os, "link", link_late)
    module._link_all(shared, tmp_path / "runner")
    found = {str(path.relative_to(tmp_path / "runner")) for path in (tmp_path / "runner").rglob("*.*")}
    assert found == {"KEY/cuda_utils.so", "activity.so"}
    assert (tmp_path / "runner/KEY/cuda_utils.so").samefile(shared / "KEY/cuda_utils.so")


NEVER = 1e6


def pool_of(path, *starting):
    """A pool without a GPU: (seconds since the start, seconds until it is ready, with cuBLAS?) of each process."""
    pool, now = object.__new__(RunnerPool), time.monotonic()
    pool._changed, pool._wanted, pool._error, pool.terminating = threading.Condition(), queue.SimpleQueue(), None, []
    pool._waiting = deque(
        _WaitingRunner(Process(ready), path / str(n), now - age, *kind)
        for n, (age, ready, *kind) in enumerate(starting)
    )
    return pool


@pytest.mark.parametrize(
    ("starting", "taken"),
    [
        ([(1, 0), (1, 0)], 0),
        ([(1, 0.1), (1, 0.5)], 0),
        ([(1, NEVER), (1, 0.05), (1, 0)], 2),
        ([(1, NEVER), (1, 0.05), (1, NEVER)], 1),
        ([(1e3, 0), (1, 0)], 0),
    ],
)
def test_whoever_is_ready_is_taken_in_the_order_of_their_start(tmp_path, starting, taken):
    pool = pool_of(tmp_path, *starting)
    expected = pool._waiting[taken]
    assert pool._first_ready(False) is expected and expected not in pool._waiting
    assert pool._wanted.qsize() == 1, "another is started in its lease"
    assert not pool.terminating and len(pool._waiting) == len(starting) - 1


def test_a_process_that_never_gets_ready_is_given_up_and_replaced(tmp_path):
    pool = pool_of(tmp_path, (1e3, NEVER), (1, 0))
    hung, ready = (runner.process for runner in pool._waiting)
    with pytest.warns(UserWarning, match="a runner was not ready within 60 s"):
        assert pool._first_ready(False).process is ready
    assert pool.terminating == [hung] and hung.ended == 1 and not pool._waiting and pool._wanted.qsize() == 2


def test_where_no_process_gets_ready_the_gpu_is_unwell(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_START_S", 0.05)
    with pytest.raises(GpuUnhealthy, match="no runner was ready"):
        pool_of(tmp_path, (0, NEVER), (0, NEVER))._first_ready(False)


@pytest.mark.parametrize(
    ("starting", "products", "taken"),
    [
        ([(1, 0, False), (1, 0, True)], True, 1),
        ([(1, 0, True), (1, 0, False)], False, 1),
        ([(1, 0, False), (1, 0, False)], True, 0),
        ([(1, 0, False), (1, NEVER, True)], True, 0),
        ([(1, 0, True), (1, NEVER, False)], False, 0),
    ],
)
def test_one_of_the_right_kind_is_taken_and_replaced_but_none_waited_for(tmp_path, starting, products, taken):
    pool = pool_of(tmp_path, *starting)
    expected = pool._waiting[taken]
    assert pool._first_ready(products) is expected and pool._wanted.get_nowait() == products


@pytest.mark.parametrize("line", ["y = x @ w", "y = f(x)@(w)", "torch.mm(x, w)", "F.linear(x, w)", "nn.Linear(3, 4)"])
def test_products_that_are_left_to_pytorch_are_seen(line):
    kernel = "@triton.jit\ndef kernel(x):\n    tl.dot(x, x)\n\n@triton.autotune(configs)\n"
    assert module.multiplies(kernel + line) and not module.multiplies(kernel + "y = kernel_mm(x)  # element by element")
