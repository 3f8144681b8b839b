"""A GPU that is full or busy, which is the fault of neither task nor submission. Without a GPU."""

from __future__ import annotations

import contextlib
import itertools
from types import SimpleNamespace

import pytest
import torch

from drkernel.judge.devices.cuda import buffers, examiner
from drkernel.judge.devices.cuda.device import CudaDevice
from drkernel.judge.devices.cuda.examiner import GpuExaminer, expect_memory
from drkernel.judge.devices.cuda.gpu_lock import GpuBusy, GpuUnhealthy
from drkernel.judge.trusted import timed_shapes
from drkernel.judge.trusted.prepare import PreparedTask
from drkernel.judge.trusted.sizes.footprint import Footprint
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task, Verdict

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


@pytest.mark.parametrize(("exclusive", "found"), [(False, GpuBusy), (True, GpuUnhealthy)])
def test_a_full_gpu_is_not_held_against_the_task(exclusive, found):
    with pytest.raises(found, match=r"^no room is left on the GPU: CUDA out .* 3 MiB is free\.$"):
        expect_memory(exclusive, lambda: Reference(Task("greedy", GREEDY)).inputs(0))


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

    monkeypatch.setattr(buffers, "DeviceArea", Area)
    with pytest.raises(torch.OutOfMemoryError):
        buffers.areas((512,) * 4)
    assert not left


def test_other_faults_of_a_task_stay_its_own():
    broken = Reference(Task("broken", GREEDY.replace("torch.OutOfMemoryError", "ValueError")))
    with pytest.raises(DrKernelError, match="task broken: line 9, get_inputs: ValueError"):
        expect_memory(False, lambda: broken.inputs(0))


def test_a_busy_gpu_is_not_free_because_it_answers_quickly_now_and_then(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(examiner, "_PROBE_S", 0.5)
    free, busy = itertools.repeat(15.0), itertools.cycle([15.0] * 30 + [2400.0] * 30)
    monkeypatch.setattr(examiner, "_tiny_us", lambda: next(busy))
    with pytest.raises(GpuUnhealthy, match="a tiny kernel still takes more than 400 us"):
        GpuExaminer._probe(None, exclusive=True)
    monkeypatch.setattr(examiner, "_tiny_us", lambda: next(free))
    GpuExaminer._probe(None, exclusive=True)


@pytest.mark.parametrize(("ended_s", "releasing", "paused"), [(0.0, True, 0.0), (0.0, False, 1.0), (9.0, True, 1.0)])
def test_who_is_waited_for_anyway_works_on(ended_s, releasing, paused):
    pool, lease = SimpleNamespace(releasing=releasing), SimpleNamespace(pause=lambda: 1.0)
    found = SimpleNamespace(_last_ended=examiner.time.monotonic() - ended_s, _pool=pool, _lease=lease)
    assert GpuExaminer._pause(found) == paused, "a runner that takes for ever to die does not keep others waiting"


FORGED, MEMORY = Verdict("hack", "forged_time"), Verdict("invalid", "out_of_memory", "CUDA out of memory")
UNEVEN, EVEN = (Verdict("ok", "slower", evidence={"timing": {"uneven": found}}) for found in (True, False))
SLOW, HANGS = Verdict("invalid", "timeout", evidence={"together": True}), Verdict("invalid", "timeout")


@pytest.mark.parametrize(
    ("verdict", "exclusive", "inconclusive"),
    [
        (FORGED, False, True), (MEMORY, False, True), (SLOW, False, True), (HANGS, False, False),
        (FORGED, True, False), (MEMORY, True, False), (SLOW, True, False), (HANGS, True, False),
        (UNEVEN, False, True), (UNEVEN, True, False), (EVEN, False, False),
    ],
)  # fmt: skip
def test_what_another_examination_may_have_caused_is_inconclusive(monkeypatch, verdict, exclusive, inconclusive):
    probes = []
    mine = examiner_on(monkeypatch, exclusive, free_gib=70)
    mine._probe = probes.append
    with pytest.raises(GpuBusy) if inconclusive else contextlib.nullcontext():
        GpuExaminer._expect_conclusive(mine, verdict, 0.6)
    assert probes == ([exclusive] if verdict.reason in ("forged_time", "timeout") and not inconclusive else []), (
        "the GPU is looked at where its slowness may matter"
    )


def examiner_on(monkeypatch, exclusive: bool, free_gib: float, broken: bool = False) -> SimpleNamespace:
    """An examiner whose GPU has 80 GiB."""

    def tiny_us() -> float:
        if broken:
            raise RuntimeError("CUDA error: unspecified launch failure")
        return 15.0

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (int(free_gib * 2**30), 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(examiner, "_tiny_us", tiny_us)
    mine = SimpleNamespace(_lease=SimpleNamespace(exclusive=exclusive), _pool=SimpleNamespace(terminating=[]))
    mine.config = SimpleNamespace(device="cuda:NVIDIA H200")
    mine._probe = lambda exclusive: GpuExaminer._probe(mine, exclusive)
    mine._release = lambda: GpuExaminer._release(mine)
    return mine


@pytest.mark.parametrize(("free_gib", "excused"), [(20, True), (47, True), (49, False), (79, False)])
def test_memory_that_others_hold_is_not_the_submissions_fault(monkeypatch, free_gib, excused):
    """60 % of 80 GiB are promised."""
    mine = examiner_on(monkeypatch, exclusive=True, free_gib=free_gib)
    with pytest.raises(GpuUnhealthy, match=r"48\.0 GiB that are promised") if excused else contextlib.nullcontext():
        GpuExaminer._expect_conclusive(mine, MEMORY, 0.6)


@pytest.mark.parametrize("found", [HANGS, Verdict("invalid", "crashed"), Verdict("invalid", "runtime_error")])
def test_what_was_found_of_a_submission_is_kept_where_the_gpu_fails_after_it(monkeypatch, found):
    mine = examiner_on(monkeypatch, exclusive=True, free_gib=70, broken=True)
    with pytest.raises(GpuUnhealthy, match="the GPU fails: CUDA error") as caught:
        GpuExaminer._expect_conclusive(mine, found, 0.6)
    assert caught.value.verdict.reason == found.reason


def test_areas_for_which_there_is_no_room_beside_others_are_tried_again_alone(monkeypatch, tmp_path):
    def full(exclusive, needs):
        raise GpuBusy("no room")

    (tmp_path / "kernels").mkdir()
    ledger = SimpleNamespace(limit=10, hold=lambda size: contextlib.nullcontext(0.0))
    mine = SimpleNamespace(_ledger=ledger, _share=lambda *_: 5, _fit=full, _free_large=lambda: None)
    mine._prepared_task = lambda task: SimpleNamespace(footprint=Footprint(0, 0, 0))
    found = GpuExaminer.judge(mine, None, "", tmp_path / "kernels", False)
    assert found == {"inconclusive": "GpuBusy: no room"} and not (tmp_path / "kernels").exists()


@pytest.mark.parametrize(
    ("large", "fits", "other", "admitted"),
    [
        (False, True, Footprint(9, 9, 9), True),
        (False, False, Footprint(9, 9, 9), False),
        (True, False, Footprint(4, 3, 2), True),
        (True, True, Footprint(4, 3, 3), False),
        (True, True, Footprint(5, 3, 2), False),
    ],
)
def test_another_shape_that_is_timed_takes_no_more_room_than_there_is(large, fits, other, admitted):
    areas = SimpleNamespace(large=large, fits=lambda footprint: fits)
    assert CudaDevice._admits(SimpleNamespace(_buffers=areas), Footprint(4, 3, 2), other) == admitted


def test_kernels_are_compiled_for_all_shapes_that_a_submission_will_meet():
    at = lambda rows: SimpleNamespace(reference=SimpleNamespace(constants={"rows": rows}))
    task = Task("t", "source")
    prepared = PreparedTask(task, None, [at(33).reference], [(False,)], (), False, {}, "", {}, timed=[at(48), at(47)])
    mine = SimpleNamespace(_prepared_task=lambda task: prepared)
    plan = GpuExaminer.prepare(mine, task)
    assert [constants["rows"] for constants in plan["hidden"]] == [33, 48, 47]


def test_memory_that_gives_out_does_not_decide_which_shapes_are_timed():
    prepared = PreparedTask(Task("t", WIDE), Reference(Task("t", WIDE)), [], [(False,)], (), False, {}, "", {})
    found = timed_shapes._Found(prepared, prepared.reference, 0, lambda footprint: True)
    assert found.usable(timed_shapes.Sizes({"rows": 6}, {"rows": 6})) is not None
    assert found.usable(timed_shapes.Sizes({"rows": 6}, {"rows": 6})) is None, "it is known"
    with pytest.raises(DrKernelError, match="CUDA out of memory"):
        found.usable(timed_shapes.Sizes({"rows": 9}, {"rows": 9}))


WIDE = GREEDY.replace(
    "raise torch", "if rows == 9 and not isinstance(torch.empty(0), FakeTensor):\n        raise torch"
)
WIDE = WIDE.replace(
    "import torch\n", "import torch\nfrom torch._subclasses.fake_tensor import FakeTensor\nrows = 8\n", 1
)
WIDE = WIDE.replace("def get_init", "    return [torch.rand(rows, 4)]\n\ndef get_init")
