"""Who does the judging on GPUs: compile workers on the CPUs, examiners on each GPU, and queues between them.

Stages in the order of their cost: static checks and compilation (a CPU process, no GPU), then the examination. A task
is prepared on a GPU once, before its first submission is compiled, because only then its hidden shapes are known. With
`screeners`, submissions are tried in Triton's interpreter first, which can refuse a wrong one and pass none.
Nothing that was taken is lost: a worker that dies is started anew and its submission examined again, a GPU that fails
its probe is left out until it passes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import queue
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drkernel.judge.boundary.cuda import setup
from drkernel.judge.devices.cuda.baselines import Store, add_speedups
from drkernel.judge.devices.cuda.job_queue import AffinityQueue
from drkernel.judge.devices.simulated.backend import SimulatedBackend
from drkernel.judge.trusted.worker_process import Worker, WorkerCrashed, settle
from drkernel.types import DrKernelError, Task

EXAMINERS, SPARE = 2, 5
"""Examiners that share a GPU; runners that each keeps ready."""
_PREFIX = "drkernel-judge-"
_ROUNDS, _TRIES, _RECOVERY_S = 8, 2, 5.0
_NICE = 10
"""What is done on CPUs alone gives way to examiners and runners, which a GPU waits for."""
SCREENED = ("wrong_values", "wrong_shape", "wrong_dtype", "wrong_structure", "wrong_on_other_shape")
SCREENED += ("launch_without_effect",)
"""Refusals that are no matter of the device. Whatever else the interpreter finds, a GPU decides."""
_SCREEN, _SCREEN_S = "simulated:H200", 2.0
"""The screen's device, of whose times nothing is used, and the seconds that one answer may take there."""


@dataclass
class _Job:
    task: Task
    source: str | None
    future: Future
    plan: Future
    began: float = field(default_factory=time.monotonic)
    missing: list[dict[str, Any]] = field(default_factory=list)
    rounds: int = 0
    tries: int = 0
    sole: bool = False
    """Whether it must be examined with nobody beside it."""
    folder: Path | None = None
    compile_s: float = 0.0
    spans: list = field(default_factory=list)


class CudaBackend:
    """See SimulatedBackend, whose methods it has.

    Args:
        gpus: as CUDA_VISIBLE_DEVICES names them.
        compilers: processes that compile.
        store: baselines that verdicts are compared with as well.
        screeners: processes that try submissions in the interpreter first; 0: none does.

    Raises:
        DrKernelError: there is no GPU.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        secret: bytes,
        gpus: Sequence[str | int] | None,
        compilers: int,
        patience: float,
        store: Store | None = None,
        screeners: int = 0,
    ):
        self._gpus = [str(gpu) for gpu in gpus or ()]
        if not self._gpus:
            raise DrKernelError("judge: device 'cuda' needs a GPU and none is visible, use 'simulated'")
        self._settings, self._secret, self._patience = settings, secret, patience
        self._store, self._screen = store, None
        if screeners:
            config = settings["config"] | {"device": _SCREEN, "timeout_s": _SCREEN_S}
            self._screen = SimulatedBackend(settings | {"config": config, "nice": _NICE}, secret, screeners, patience)
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        _sweep(Path(base or tempfile.gettempdir()))
        self._scratch = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=base))
        self._to_compile: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._to_examine = AffinityQueue(len(self._gpus) * EXAMINERS)
        self._order, self._lock = itertools.count(), threading.Lock()
        self._plans: dict[str, Future] = {}
        self._open: set[Future] = set()
        self._closing, self._warned = threading.Event(), False
        self._device = "cuda"
        seats = list(enumerate(self._gpus * EXAMINERS))
        self._well = {seat for seat, _ in seats}
        serve = [(self._compile, (i,)) for i in range(compilers)] + [(self._examine, seat) for seat in seats]
        self._threads = [threading.Thread(target=target, args=args, daemon=True) for target, args in serve]
        for thread in self._threads:
            thread.start()

    def enqueue(self, task: Task, source: str | None) -> Future:
        with self._lock:
            plan = self._plans.get(task.digest)
            if plan is None:
                plan = self._plans[task.digest] = Future()
                self._to_examine.put(_Job(task, None, Future(), plan))
        future: Future = Future()
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        if source is None:
            plan.add_done_callback(lambda plan: _pass_on(plan, future))
        else:
            job = _Job(task, source, future, plan)
            plan.add_done_callback(lambda _: self._admit(job))
        return future

    def close(self) -> None:
        self._closing.set()
        if self._screen:
            self._screen.close()
        self._to_examine.close()
        with contextlib.suppress(queue.Empty):
            while True:
                self._to_compile.get_nowait()
        for _ in self._threads:
            self._to_compile.put(None)
        for thread in self._threads:
            thread.join()
        for future in list(self._open):
            if not future.cancel() and not future.done():
                future.set_exception(DrKernelError("judge: closed before the verdict"))
        shutil.rmtree(self._scratch, ignore_errors=True)

    # screening

    def _admit(self, job: _Job) -> None:
        """To be compiled, by way of the screen."""
        if not self._screen or job.plan.exception():
            self._to_compile.put(job)
        else:
            self._screen.enqueue(job.task, job.source).add_done_callback(lambda found: self._screened(job, found))

    def _screened(self, job: _Job, found: Future) -> None:
        if found.cancelled():
            return  # all is being closed
        verdict = None if found.exception() else found.result()
        if verdict:
            job.spans.append(["screen", time.monotonic() - verdict.seconds, time.monotonic()])
        priced = verdict and verdict.status == "hack" and self._settings["config"]["price_hacks"]
        if not verdict or priced or verdict.reason not in SCREENED:
            self._to_compile.put(job)
        elif job.future.set_running_or_notify_cancel():
            evidence = verdict.evidence | {"screened": verdict.device}
            verdict = dataclasses.replace(verdict, device=self._device, evidence=evidence)
            self._end(job, {"verdict": verdict.to_dict()}, "")

    # compiling

    def _compile(self, number: int) -> None:
        """One thread per compile worker."""
        settings = self._settings | {"kind": "compiler", "scratch": str(self._scratch), "nice": _NICE}
        worker: Worker | None = None
        with contextlib.suppress(WorkerCrashed):
            worker = Worker(settings, self._secret, setup.COMPILING)
        for job in iter(self._to_compile.get, None):
            if not (job.rounds or job.tries or job.sole) and not job.future.set_running_or_notify_cancel():
                continue
            if error := job.plan.exception():
                job.future.set_exception(error)
                continue
            answer, problem, start = None, "", time.monotonic()
            for _ in range(_TRIES):
                try:
                    worker = worker or Worker(settings, self._secret, setup.COMPILING)
                    answer = worker.ask(self._compilation(job), self._patience)
                    break
                except WorkerCrashed as broken:
                    problem = str(broken)
                    if worker:
                        worker.kill()
                    worker = None
            job.spans.append(["compile", start, time.monotonic()])
            job.compile_s += time.monotonic() - start
            if answer is not None and "kernels" in answer:
                job.folder = Path(answer["folder"])
                self._to_examine.put(job)
            else:
                self._end(job, answer, problem)
        if worker:
            worker.kill()

    def _compilation(self, job: _Job) -> dict[str, Any]:
        body = {"task": dataclasses.asdict(job.task), "source": job.source, "plan": job.plan.result()}
        return body | {"missing": job.missing, "folder": str(self._scratch / f"kernels-{next(self._order)}")}

    # examining

    def _examine(self, seat: int, gpu: str) -> None:
        """One thread per examiner."""
        settings = self._settings | {"kind": "gpu", "scratch": str(self._scratch), "spare": SPARE, "sharing": EXAMINERS}
        settings["describes"] = self._store is not None
        worker: Worker | None = None
        while True:
            worker = worker or self._recovered(settings, seat, gpu)
            job = self._to_examine.take(seat)
            if not job:
                break
            try:
                worker = worker or self._start(settings, seat, gpu)
            except WorkerCrashed as broken:
                self._left_out(seat, gpu, job, str(broken))
                continue
            start = time.monotonic()
            try:
                answer = worker.ask(self._examination(job), self._patience)
                problem = answer.get("unwell")
            except WorkerCrashed as broken:
                problem = str(broken)
            if problem:
                worker.kill()
                worker = None
                self._to_examine.lost(seat)
                self._again(job, problem)
                continue
            job.spans.append(["examiner", start, time.monotonic()])
            if "missing" in answer and job.rounds < _ROUNDS:
                job.rounds += 1
                job.missing += answer["missing"]
                self._to_compile.put(job)
            elif "doubt" in answer:
                job.sole = True
                self._to_compile.put(job)
            else:
                self._end(job, answer, "")
        if worker:
            worker.kill()

    def _examination(self, job: _Job) -> dict[str, Any]:
        body = {"task": dataclasses.asdict(job.task), "source": job.source}
        return body if job.source is None else body | {"kernels": str(job.folder), "sole": job.sole}

    def _start(self, settings: dict[str, Any], seat: int, gpu: str) -> Worker:
        worker = Worker(settings, self._secret, setup.visible(gpu))
        self._well.add(seat)
        if worker.missing and not self._warned:
            self._warned = True
            warnings.warn(f"judge: this machine lacks {'; '.join(worker.missing)}", stacklevel=2)
        return worker

    def _recovered(self, settings: dict[str, Any], seat: int, gpu: str) -> Worker | None:
        """An examiner that has started, at last; meanwhile others do the work. None: there are no others."""
        while True:
            try:
                return self._start(settings, seat, gpu)
            except WorkerCrashed as broken:
                if seat in self._well:
                    warnings.warn(f"judge: GPU {gpu} is left out until it is well: {broken}", stacklevel=2)
                self._well.discard(seat)
            if not self._well or self._closing.wait(_RECOVERY_S):
                return None

    def _left_out(self, seat: int, gpu: str, job: _Job, problem: str) -> None:
        """No examiner starts here: the work goes to another GPU, or ends where there is none."""
        self._to_examine.lost(seat)
        if self._well and not self._closing.is_set():
            self._to_examine.put(job)
        else:
            self._plans.pop(job.task.digest, None)  # says nothing of the task
            self._end(job, {"error": f"judge: no examiner starts on GPU {gpu}: {problem}"}, problem)

    def _again(self, job: _Job, problem: str) -> None:
        """The examiner died or gave up over this submission: it is compiled and examined once more, not for ever."""
        job.tries += 1
        if job.tries >= _TRIES:
            self._end(job, None, problem)
        elif job.source is None:
            self._to_examine.put(job)
        else:
            self._to_compile.put(job)

    def _end(self, job: _Job, answer: dict[str, Any] | None, problem: str) -> None:
        if job.source is None:
            _settle_plan(job.plan, answer, problem)
            return
        if answer is not None and "missing" in answer:
            answer = _unpredictable(answer["missing"], self._device)
        if answer is not None and "verdict" in answer:
            verdict = answer["verdict"]
            if self._store:
                add_speedups(self._store, job.task, answer)
            cost = verdict["evidence"].setdefault("cost", {})
            worked = sum(end - start for _, start, end in job.spans)
            verdict["seconds"] = max(0.0, worked - cost.get("wait", 0.0) / 1e3)
            cost |= {"compile": round(1e3 * job.compile_s, 2), "rounds": job.rounds}
            cost["spans"] = [["queue", job.began, job.spans[0][1]], *job.spans, *cost.get("spans", [])]
        settle(job.future, answer, problem, self._device)


def _sweep(base: Path) -> None:
    """Removes what judges left there that were killed."""
    for folder in base.glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _settle_plan(plan: Future, answer: dict[str, Any] | None, problem: str) -> None:
    if answer is None or "error" in answer:
        plan.set_exception(
            DrKernelError(answer["error"] if answer else f"judge: a task could not be prepared: {problem}")
        )
    else:
        plan.set_result(answer["plan"])


def _pass_on(plan: Future, future: Future) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if error := plan.exception():
        future.set_exception(error)
    else:
        future.set_result(None)


def _unpredictable(missing: list[dict[str, Any]], device: str) -> dict[str, Any]:
    detail = f"kernel {missing[0].get('kernel')}: every call needs another specialisation, more than {_ROUNDS} of them"
    return {
        "verdict": {"status": "invalid", "reason": "runtime_error", "detail": detail, "device": device, "evidence": {}}
    }
