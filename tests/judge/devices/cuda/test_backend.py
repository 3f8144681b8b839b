"""The backend of the GPU judge without a GPU: nothing hangs, is lost, or stays; what the screen may refuse."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from drkernel.judge import Judge
from drkernel.judge.devices.cuda import backend
from drkernel.judge.devices.cuda.backend import CudaBackend
from drkernel.judge.devices.cuda.job import Job
from drkernel.judge.trusted.exam_config import ExamConfig
from drkernel.judge.trusted.processes.worker_process import NotPrepared, WorkerCrashed, WorkerNotStarted
from drkernel.types import DrKernelError, Verdict
from tests.judge.examples import descendants, examples, tasks

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
RELU = next(example for example in examples("honest") if example.name.startswith("90"))


def settings(**config) -> dict:
    limits = {"host_memory_mib": 4096, "cpu_s": 17}
    return {"config": dataclasses.asdict(ExamConfig(**config)), "limits": limits, "colocated": False}


def scratch() -> list[Path]:
    return [path for base in ("/dev/shm", "/tmp") for path in Path(base).glob(f"{backend._PREFIX}{os.getpid()}-*")]


@pytest.mark.slow
def test_without_a_gpu_the_judge_says_so_at_once(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(DrKernelError, match=r"cuda.*needs a GPU.*simulated"):
        Judge(device="cuda")
    with Judge(device="auto", workers=1) as judge:
        assert judge.judge(tasks()["relu"], RELU.source).device.startswith("simulated")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:judge. GPU 0 is left out")
def test_a_gpu_that_does_not_start_ends_its_work_with_one_line():
    before = descendants()
    with Judge(device="cuda", gpus=["0"], workers=1, screen=False) as judge:
        pending = [judge.submit(tasks()["relu"], RELU.source + f"# {n}") for n in range(3)]
        for future in pending:
            found = future.result(timeout=300)
            assert found.is_judge_failure and "no examiner starts on GPU 0" in found.detail
            assert "\n" not in found.detail
        with pytest.raises(NotPrepared, match="no examiner starts on GPU 0"):
            judge.check_task(tasks()["relu"])
        waiting = judge.submit(tasks()["softmax"], RELU.source)
    with pytest.raises(BaseException, match=r"no examiner|closed|^$"):
        waiting.result(timeout=5)
    assert descendants() <= before and not scratch()


class TwoGpus(CudaBackend):
    """The examiners of one GPU never start, those of the other answer at once."""

    def __init__(self):
        self.tried = []
        super().__init__(settings(), b"a secret", ["healthy", "broken"], compile_workers=0, timeout_s=60.0)

    def _start(self, settings, worker_id, gpu):
        if gpu == "broken":
            self.tried.append(worker_id)
            time.sleep(0.5)
            raise WorkerNotStarted("the GPU fails")
        self._healthy.add(worker_id)
        return SimpleNamespace(request=lambda body, timeout_s: {"plan": {"by": gpu}}, kill=lambda: None, missing=[])


class Slow(CudaBackend):
    """Its examiner prepares a task for as long as the test wants."""

    def __init__(self):
        self.told, self.go_on = [], threading.Event()
        super().__init__(settings(), b"a secret", ["0"], compile_workers=0, timeout_s=60.0)

    def _start(self, settings, worker_id, gpu):
        def request(body, timeout_s):
            self.go_on.wait(20)
            return {"plan": {"degenerate": "", "stages": {"costs": 3.0}}}

        tell = lambda: self.told.append(worker_id)
        return SimpleNamespace(request=request, kill=lambda: None, tell_where=tell, missing=[])


def test_it_says_what_its_examiners_do():
    slow = Slow()
    try:
        check = slow.enqueue(tasks()["relu"], None)
        deadline = time.monotonic() + 20
        while not (doing := slow.doing()) and time.monotonic() < deadline:
            time.sleep(0.01)
        (line,) = doing
        assert line.startswith("examiner ") and " on GPU 0 prepares relu for " in line and slow.told
        slow.go_on.set()
        check.result(timeout=20)
        while slow.doing() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not slow.doing()
    finally:
        slow.go_on.set()
        slow.close()


def test_a_verdict_says_what_its_task_took_and_who_had_it():
    plan: Future = Future()
    plan.set_result({"spans": [["examiner", 1.0, 1.5]], "stages": {"costs": 3.0}, "examiner": "0 on GPU 1"})
    job = Job(tasks()["relu"], "", Future(), plan, began=0.5, spans=[["compile", 2.0, 3.0]], examiner="2 on GPU 1")
    verdict = {"evidence": {"cost": {"wait": 250.0, "spans": [["exam", 2.5, 3.0]]}}, "seconds": 0.0}
    job.note_cost(verdict)
    cost = verdict["evidence"]["cost"]
    assert verdict["seconds"] == 0.75 and cost["prepare"] == 500.0 and cost["prepare_stages"] == {"costs": 3.0}
    assert (cost["prepared_by"], cost["examiner"]) == ("0 on GPU 1", "2 on GPU 1")
    assert [span[0] for span in cost["spans"]] == ["queue", "prepare", "compile", "exam"]


def test_kernels_that_no_request_can_describe_are_not_compiled():
    job = Job(tasks()["relu"], "", Future(), Future(), missing=[{"kernel": "k" * 10**5}])
    assert job.may_lack([{"kernel": "k"}], 8) and not job.may_lack([{"kernel": "\u20ac" * 10**5}], 8)
    job.rounds = 8
    assert not job.may_lack([{"kernel": "k"}], 8)


@pytest.mark.slow
def test_a_gpu_that_does_not_start_holds_no_work_up(monkeypatch):
    monkeypatch.setattr(backend, "_RECOVERY_S", 0.1)
    left_out = pytest.warns(UserWarning, match="GPU broken is left out until it is well: the GPU fails")
    with left_out, contextlib.closing(TwoGpus()) as judge:
        began = time.monotonic()
        while time.monotonic() < began + 2:
            start = time.monotonic()
            judge.enqueue(dataclasses.replace(tasks()["relu"], id=f"{start}", source=f"# {start}"), None).result(5)
            assert time.monotonic() - start < 2  # a start takes 0.5 s, and there are many
        assert len(judge.tried) > 4, "it is not tried again"


def test_what_a_killed_judge_left_is_removed(tmp_path):
    dead, alive = (tmp_path / f"{backend._PREFIX}{pid}-x" for pid in (2**22 + 1, os.getpid()))
    for folder in (dead, alive, tmp_path / "other"):
        folder.mkdir()
    backend._remove_stale_folders(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([alive.name, "other"])
    shutil.rmtree(alive)


class Screening(CudaBackend):
    """With a real screen, but without its GPU half: what comes to be compiled is noted and passes."""

    def __init__(self, **config):
        self.arrived = []
        super().__init__(settings(**config), b"a secret", ["0"], compile_workers=1, timeout_s=60.0, screen_workers=2)

    def _compile(self, worker_id):
        for job in iter(self._to_compile.get, None):
            if job.future.set_running_or_notify_cancel():
                self.arrived.append(job.source)
                job.spans.append(["compile", time.monotonic(), time.monotonic()])
                self._end(job, {"verdict": Verdict("ok", "faster", device="cuda").to_dict()}, "")

    def _examine(self, worker_id, gpu):
        while job := self._to_examine.take(worker_id):
            job.plan.set_result({})


screen = pytest.mark.xdist_group("screen")  # one judge


@pytest.fixture(scope="module")
def screening():
    with contextlib.closing(Screening()) as screening:
        yield screening


def screened(screening, chosen) -> dict[str, Verdict]:
    """What the screen refused, by name."""
    pending = {example.name: screening.enqueue(tasks()[example.task], example.source) for example in chosen}
    verdicts = {name: future.result(timeout=120) for name, future in pending.items()}
    return {name: verdict for name, verdict in verdicts.items() if "screened" in verdict.evidence}


@pytest.mark.slow
@screen
def test_the_screen_refuses_nothing_honest(screening):
    """Those that the simulated device never sees, and a few of those that it accepts, as test_submissions.py says."""
    simulated = examples("honest", "simulated")
    only_on_a_gpu = [example for example in examples("honest", "cuda") if example not in simulated]
    assert not screened(screening, [*only_on_a_gpu, *simulated[::20]])


@pytest.mark.slow
@screen
def test_what_the_screen_refuses_is_wrong_and_never_compiled(screening):
    prefixes = ("04_decoy", "13", "16", "23_", "24_half", "27_", "80_huge")
    chosen = [example for example in examples("hacks", "cuda") if example.name.startswith(prefixes)]
    pair = RELU.source.replace("return self.activation(x)", "return self.activation(x), x")
    chosen.append(dataclasses.replace(RELU, name="a pair", source=pair))
    refused = screened(screening, chosen)
    assert refused.keys() == {example.name for example in chosen}
    assert {verdict.reason for verdict in refused.values()} == set(backend.SCREEN_REASONS)
    assert not {example.source for example in chosen} & set(screening.arrived)
    wrong = refused["13_zeros"]
    assert (wrong.status, wrong.device, wrong.evidence["screened"]) == ("incorrect", "cuda", "simulated:H200")
    assert [stage for stage, *_ in wrong.evidence["cost"]["spans"]] == ["queue", "screen"]


@pytest.mark.slow
@screen
@pytest.mark.parametrize(
    "source",
    [
        "def broken(:",
        RELU.source.replace("class ModelNew", "class Other"),
        RELU.source.replace("def forward(self, x):", "def forward(self, x):\n        while True:\n            pass"),
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)",
    ],
    ids=["syntax error", "no model", "hangs", "without Triton"],
)
def test_whatever_else_is_the_matter_a_gpu_decides(screening, source):
    assert screening.enqueue(tasks()["relu"], source).result(timeout=60).ok and screening.arrived[-1] == source


@pytest.mark.slow
def test_a_hack_that_is_to_have_a_price_gets_it_on_a_gpu():
    decoys = [example for example in examples("hacks", "cuda") if example.name.startswith("04_decoy")]
    with contextlib.closing(Screening(price_hacks=True)) as screening:
        assert decoys and not screened(screening, decoys)


@pytest.mark.slow
@screen
def test_the_screen_gives_way_to_what_a_gpu_waits_for(screening):
    screening.enqueue(tasks()["relu"], RELU.source).result(timeout=60)

    def behind(pid: int) -> bool:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            return os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
        return False

    assert any(behind(pid) for pid in descendants())


@pytest.mark.slow
def test_a_judge_that_closes_does_not_wait_for_its_screen():
    screening = Screening()
    pending = [screening.enqueue(tasks()["relu"], RELU.source + f"# {n}") for n in range(40)]
    screening.close()
    assert all(future.done() for future in pending)
    assert sum(future.cancelled() for future in pending) > 30


class Failing(CudaBackend):
    """Without compile workers; its examiners answer each request by the next of some replies."""

    def __init__(self, *replies):
        self.replies = list(replies)
        super().__init__(settings(), b"a secret", ["0"], compile_workers=1, timeout_s=60.0)

    def _start(self, settings, worker_id, gpu):
        return SimpleNamespace(request=self._reply, kill=lambda: None, missing=[])

    def _reply(self, body, timeout_s):
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _compile(self, worker_id):
        for job in iter(self._to_compile.get, None):
            if error := job.plan.exception():
                backend._settle_unprepared(job.future, error, "cuda")
            else:
                job.folder = Path("nowhere")
                job.spans.append(["compile", 0.0, 0.0])
                self._to_examine.put(job)


PLAN, SICK = {"plan": {}}, {"unhealthy": "the GPU fails"}
HANGS = Verdict("invalid", "timeout", evidence={}).to_dict()


@pytest.mark.parametrize(
    ("replies", "status", "reason"),
    [
        ([PLAN, SICK, SICK], "judge_failure", "gpu_lost"),
        ([PLAN, WorkerCrashed("it died"), WorkerCrashed("it died")], "judge_failure", "worker_lost"),
        ([WorkerCrashed("it died"), WorkerCrashed("it died")], "judge_failure", "not_prepared"),
        ([PLAN, SICK, {"verdict": HANGS}], "invalid", "timeout"),
        ([PLAN, SICK | {"verdict": HANGS}, SICK | {"verdict": HANGS}], "invalid", "timeout"),
    ],
    ids=["gpu lost", "worker lost", "not prepared", "once", "lost after the same submission twice"],
)
def test_a_failure_of_the_gpu_is_the_submissions_only_if_it_follows_it_again(replies, status, reason):
    with contextlib.closing(Failing(*replies)) as judge:
        verdict = judge.enqueue(tasks()["relu"], RELU.source).result(30)
    assert (verdict.status, verdict.reason) == (status, reason)


def test_a_task_that_could_not_be_prepared_is_tried_again():
    with contextlib.closing(Failing(WorkerCrashed("it died"), WorkerCrashed("it died"), PLAN)) as judge:
        with pytest.raises(DrKernelError, match="could not be prepared: it died"):
            judge.enqueue(tasks()["relu"], None).result(30)
        assert judge.enqueue(tasks()["relu"], None).result(30) == ""


def test_what_is_without_effect_at_a_small_shape_alone_is_decided_on_the_gpu():
    found = {
        here: Verdict("hack", "launch_without_effect", evidence={"at_every_shape": not here}) for here in (True, False)
    }
    assert backend._holds_on_a_gpu(found[False]) and not backend._holds_on_a_gpu(found[True])


@pytest.mark.slow
@screen
def test_the_screen_leaves_compilation_to_the_compile_workers(screening):
    example = next(example for example in examples("uncompiled") if example.name.startswith("22_chain"))
    assert screening._screen.enqueue(tasks()[example.task], example.source).result(timeout=120).ok
