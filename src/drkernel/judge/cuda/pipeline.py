"""Who does the judging on GPUs: compile workers on the CPUs, an examiner per GPU, and queues between them.

Stages in the order of their cost: static checks and compilation (a CPU process, no GPU), then the examination. A task
is prepared on a GPU once, before its first submission is compiled, because only then its hidden shapes are known.
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

from drkernel.judge.cuda import setup
from drkernel.judge.cuda.baselines import Store, add_speedups
from drkernel.judge.workers import Broken, Worker, settle, visible_gpus
from drkernel.types import DrKernelError, Task

SPARE, AREA_MB = 8, 4096
"""Runners that an examiner keeps ready; MiB of each of its four areas of device memory."""
_PREFIX = "drkernel-judge-"
_ROUNDS, _TRIES, _RECOVERY_S = 8, 2, 5.0
_FIRST, _NEXT, _LAST = 0, 1, 2
"""Priorities in the GPUs' queue: preparing tasks, submissions, the end."""


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
    folder: Path | None = None
    compile_s: float = 0.0
    spans: list = field(default_factory=list)


class Pipeline:
    """See Crew, whose methods it has.

    Args:
        gpus: as CUDA_VISIBLE_DEVICES names them; None: all that are visible.
        compilers: processes that compile.
        store: baselines that verdicts are compared with as well.

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
    ):
        self._gpus = [str(gpu) for gpu in (gpus if gpus is not None else visible_gpus())]
        if not self._gpus:
            raise DrKernelError("judge: device 'cuda' needs a GPU and none is visible, use 'simulated'")
        self._settings, self._secret, self._patience, self._store = settings, secret, patience, store
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        _sweep(Path(base or tempfile.gettempdir()))
        self._scratch = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=base))
        self._to_compile: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._to_examine: queue.PriorityQueue[tuple[int, int, _Job | None]] = queue.PriorityQueue()
        self._order, self._lock = itertools.count(), threading.Lock()
        self._plans: dict[str, Future] = {}
        self._open: set[Future] = set()
        self._well, self._closing, self._warned = set(self._gpus), False, False
        self._device = "cuda"
        serve = [(self._compile, (i,)) for i in range(compilers)] + [(self._examine, (gpu,)) for gpu in self._gpus]
        self._threads = [threading.Thread(target=target, args=args, daemon=True) for target, args in serve]
        for thread in self._threads:
            thread.start()

    def enqueue(self, task: Task, source: str | None) -> Future:
        with self._lock:
            plan = self._plans.get(task.digest)
            if plan is None:
                plan = self._plans[task.digest] = Future()
                self._put(_FIRST, _Job(task, None, Future(), plan))
        future: Future = Future()
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        if source is None:
            plan.add_done_callback(lambda plan: _pass_on(plan, future))
        else:
            job = _Job(task, source, future, plan)
            plan.add_done_callback(lambda _: self._to_compile.put(job))
        return future

    def close(self) -> None:
        self._closing = True
        for waiting in (self._to_compile, self._to_examine):
            with contextlib.suppress(queue.Empty):
                while True:
                    waiting.get_nowait()
        for _ in self._threads:
            self._to_compile.put(None)
            self._put(_LAST, None)
        for thread in self._threads:
            thread.join()
        for future in list(self._open):
            if not future.cancel() and not future.done():
                future.set_exception(DrKernelError("judge: closed before the verdict"))
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _put(self, priority: int, job: _Job | None) -> None:
        self._to_examine.put((priority, next(self._order), job))

    # compiling

    def _compile(self, number: int) -> None:
        """One thread per compile worker."""
        settings = self._settings | {"kind": "compiler", "scratch": str(self._scratch)}
        worker: Worker | None = None
        with contextlib.suppress(Broken):
            worker = Worker(settings, self._secret, setup.COMPILING)
        for job in iter(self._to_compile.get, None):
            if job.rounds == 0 and job.tries == 0 and not job.future.set_running_or_notify_cancel():
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
                except Broken as broken:
                    problem = str(broken)
                    if worker:
                        worker.kill()
                    worker = None
            job.spans.append(["compile", start, time.monotonic()])
            job.compile_s += time.monotonic() - start
            if answer is not None and "kernels" in answer:
                job.folder = Path(answer["folder"])
                self._put(_NEXT, job)
            else:
                self._end(job, answer, problem)
        if worker:
            worker.kill()

    def _compilation(self, job: _Job) -> dict[str, Any]:
        body = {"task": dataclasses.asdict(job.task), "source": job.source, "plan": job.plan.result()}
        return body | {"missing": job.missing, "folder": str(self._scratch / f"kernels-{next(self._order)}")}

    # examining

    def _examine(self, gpu: str) -> None:
        """One thread per GPU."""
        settings = self._settings | {"kind": "gpu", "scratch": str(self._scratch), "spare": SPARE, "area_mb": AREA_MB}
        settings["describes"] = self._store is not None
        worker: Worker | None = None
        with contextlib.suppress(Broken):
            worker = self._start(settings, gpu)
        while True:
            _, _, job = self._to_examine.get()
            if job is None:
                break
            try:
                worker = worker or self._start(settings, gpu)
            except Broken as broken:
                self._left_out(gpu, job, str(broken))
                continue
            start = time.monotonic()
            try:
                answer = worker.ask(self._examination(job), self._patience)
            except Broken as broken:
                worker.kill()
                worker = None
                self._again(job, str(broken))
                continue
            job.spans.append(["examiner", start, time.monotonic()])
            if "unwell" in answer:
                worker.kill()
                worker = None
                self._again(job, answer["unwell"])
            elif "missing" in answer and job.rounds < _ROUNDS:
                job.rounds += 1
                job.missing += answer["missing"]
                self._to_compile.put(job)
            else:
                self._end(job, answer, "")
        if worker:
            worker.kill()

    def _examination(self, job: _Job) -> dict[str, Any]:
        body = {"task": dataclasses.asdict(job.task), "source": job.source}
        return body if job.source is None else body | {"kernels": str(job.folder)}

    def _start(self, settings: dict[str, Any], gpu: str) -> Worker:
        worker = Worker(settings, self._secret, setup.visible(gpu))
        self._well.add(gpu)
        if worker.missing and not self._warned:
            self._warned = True
            warnings.warn(f"judge: this machine lacks {'; '.join(worker.missing)}", stacklevel=2)
        return worker

    def _left_out(self, gpu: str, job: _Job, problem: str) -> None:
        """A GPU on which no examiner starts takes no work for a while; without any other, the work ends."""
        self._well.discard(gpu)
        if self._well and not self._closing:
            self._put(_FIRST if job.source is None else _NEXT, job)
            time.sleep(_RECOVERY_S)
        else:
            self._plans.pop(job.task.digest, None)  # says nothing of the task
            self._end(job, {"error": f"judge: no examiner starts on GPU {gpu}: {problem}"}, problem)

    def _again(self, job: _Job, problem: str) -> None:
        """The examiner died or gave up over this submission: it is compiled and examined once more, not for ever."""
        job.tries += 1
        if job.tries >= _TRIES:
            self._end(job, None, problem)
        elif job.source is None:
            self._put(_FIRST, job)
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
            verdict["seconds"] = time.monotonic() - job.began
            if self._store:
                add_speedups(self._store, job.task, answer)
            cost = verdict["evidence"].setdefault("cost", {})
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
