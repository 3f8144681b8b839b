"""Judges on GPUs. Runs in the process of the Judge: queues, one thread per worker process, and the workers' replies.

There are compile workers, which use CPUs alone, and `EXAMINERS_PER_GPU` examiners on each GPU. The stages of a
submission come in the order of their cost: static checks and compilation, then the examination. A task is prepared on a
GPU once, before its first submission is compiled, because its hidden shapes are known only then. With `screen_workers`,
submissions run in Triton's interpreter first. Screening can reject but never accept.

Nothing that was taken is lost. A worker that dies is started anew and its submission examined again. A GPU that fails
its probe gets no work until it passes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
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
from pathlib import Path
from typing import Any

from drkernel.judge.boundary.cuda import setup
from drkernel.judge.devices.cuda.baselines import Store, add_speedups
from drkernel.judge.devices.cuda.job import Job
from drkernel.judge.devices.cuda.job_queue import AffinityQueue
from drkernel.judge.devices.simulated.backend import SimulatedBackend
from drkernel.judge.trusted.processes.worker_process import (
    ATTEMPTS,
    MissingLocksWarning,
    NotPrepared,
    Worker,
    WorkerCrashed,
    WorkerNotStarted,
    WorkerSlot,
    settle,
)
from drkernel.judge.trusted.verdicts import as_reply, judge_failure
from drkernel.types import DrKernelError, Task, Verdict

EXAMINERS_PER_GPU, READY_RUNNERS = 2, 5
"""Examiners that share a GPU, and runners that each keeps ready."""
_PREFIX = "drkernel-judge-"
_MAX_ROUNDS, _RECOVERY_S = 8, 5.0
"""How often kernels that an examination lacked are compiled, and seconds between attempts to start an examiner."""
_NICE = 10
"""What is done on CPUs alone gives way to examiners and runners, for which a GPU waits."""
SCREEN_REASONS = frozenset(
    ("wrong_values", "wrong_shape", "wrong_dtype", "wrong_structure", "wrong_on_other_shape", "launch_without_effect")
)
"""Refusals that do not depend on the device. Whatever else the interpreter finds, a GPU decides."""
_SCREEN, _SCREEN_S = "simulated:H200", 2.0
"""The device of the screen, whose times are not used, and the seconds that one call may take there."""


class CudaBackend:
    """An `interface.Backend`.

    Args:
        gpus: as CUDA_VISIBLE_DEVICES names them.
        compile_workers: processes that compile.
        timeout_s: seconds that a worker may take for one submission.
        store: baselines that verdicts are compared with as well.
        screen_workers: processes that run submissions in the interpreter first; 0: none does.

    Raises:
        DrKernelError: there is no GPU.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        secret: bytes,
        gpus: Sequence[str | int] | None,
        compile_workers: int,
        timeout_s: float,
        store: Store | None = None,
        screen_workers: int = 0,
    ):
        self._gpus = [str(gpu) for gpu in gpus or ()]
        if not self._gpus:
            raise DrKernelError("judge: device 'cuda' needs a GPU and none is visible, use 'simulated'")
        self._settings, self._secret, self._timeout_s = settings, secret, timeout_s
        self._store = store
        self._screen: SimulatedBackend | None = None
        if screen_workers:
            config = settings["config"] | {"device": _SCREEN, "timeout_s": _SCREEN_S, "timed_shapes": 1}
            screen_settings = settings | {"config": config, "nice": _NICE, "compiles": False}
            self._screen = SimulatedBackend(screen_settings, secret, screen_workers, timeout_s)
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        _remove_stale_folders(Path(base or tempfile.gettempdir()))
        self._scratch = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=base))
        self._to_compile: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._to_examine: AffinityQueue[Job] = AffinityQueue(len(self._gpus) * EXAMINERS_PER_GPU)
        self._order, self._lock = itertools.count(), threading.Lock()
        self._plans: dict[str, Future] = {}
        """By the digest of the task."""
        self._open: set[Future] = set()
        self._closing, self._missing_locks = threading.Event(), MissingLocksWarning()
        self._device = "cuda"
        examiners = list(enumerate(self._gpus * EXAMINERS_PER_GPU))
        self._healthy = {worker_id for worker_id, _ in examiners}
        """Examiners that have started, or were not tried yet."""
        self._doing: dict[int, tuple[Job, float, WorkerSlot]] = {}
        """By examiner: its job, since when, and its process."""
        self._threads = [
            threading.Thread(target=self._compile, args=(i,), daemon=True) for i in range(compile_workers)
        ] + [threading.Thread(target=self._examine, args=examiner, daemon=True) for examiner in examiners]
        for thread in self._threads:
            thread.start()

    def enqueue(self, task: Task, source: str | None) -> Future:
        with self._lock:
            plan = self._plans.get(task.digest)
            if plan is None:
                plan = self._plans[task.digest] = Future()
                self._to_examine.put(Job(task, None, Future(), plan))
        future: Future = Future()
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        if source is None:
            plan.add_done_callback(lambda plan: _settle_check(plan, future))
        else:
            job = Job(task, source, future, plan)
            found = self._screen.enqueue(task, source) if self._screen else None  # while the task is prepared
            plan.add_done_callback(lambda _: self._admit(job, found))
        return future

    def doing(self) -> list[str]:
        """What each examiner that works does now, for people. Each also writes where it is to its standard error."""
        now, found = time.monotonic(), []
        for job, since, slot in list(self._doing.values()):
            slot.tell_where()
            what = "prepares" if job.source is None else "examines a submission to"
            found.append(f"examiner {job.examiner} {what} {job.task.id} for {now - since:.1f} s")
        return found

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

    def _admit(self, job: Job, found: Future | None) -> None:
        """Passes a submission on to be compiled, once the screen has not refused it."""
        if not found or job.plan.exception():
            self._to_compile.put(job)
        else:
            found.add_done_callback(lambda found: self._screened(job, found))

    def _screened(self, job: Job, found: Future) -> None:
        if found.cancelled():
            return  # the judge is being closed
        verdict = None if found.exception() else found.result()
        if verdict:
            job.spans.append(["screen", time.monotonic() - verdict.seconds, time.monotonic()])
        priced = verdict and verdict.status == "hack" and self._settings["config"]["price_hacks"]
        if not verdict or priced or not _holds_on_a_gpu(verdict):
            self._to_compile.put(job)
        elif job.future.set_running_or_notify_cancel():
            evidence = verdict.evidence | {"screened": verdict.device}
            verdict = dataclasses.replace(verdict, device=self._device, evidence=evidence)
            self._end(job, {"verdict": verdict.to_dict()}, "")

    # compiling

    def _compile(self, worker_id: int) -> None:
        """One thread per compile worker."""
        settings = self._settings | {"kind": "compiler", "scratch": str(self._scratch), "nice": _NICE}
        slot = WorkerSlot(lambda: Worker(settings, self._secret, setup.COMPILING), retry_start=True)
        with contextlib.suppress(WorkerNotStarted):
            slot.start()
        for job in iter(self._to_compile.get, None):
            first_time = not (job.rounds or job.attempts or job.exclusive)
            if first_time and not job.future.set_running_or_notify_cancel():
                continue
            if error := job.plan.exception():
                _settle_unprepared(job.future, error, self._device)
                continue
            reply, problem, start = None, "", time.monotonic()
            try:
                reply = slot.request(functools.partial(self._compile_request, job), self._timeout_s)
            except WorkerCrashed as crash:
                problem = str(crash)
            job.spans.append(["compile", start, time.monotonic()])
            job.compile_s += time.monotonic() - start
            if reply is not None and "kernels" in reply:
                job.folder = Path(reply["folder"])
                self._to_examine.put(job)
            else:
                self._end(job, reply, problem)
        slot.kill()

    def _compile_request(self, job: Job) -> dict[str, Any]:
        body = {"task": dataclasses.asdict(job.task), "source": job.source, "plan": job.plan.result()}
        return body | {"missing": job.missing, "folder": str(self._scratch / f"kernels-{next(self._order)}")}

    # examining

    def _examine(self, worker_id: int, gpu: str) -> None:
        """One thread per examiner."""
        settings = self._settings | {"kind": "gpu", "scratch": str(self._scratch), "ready_runners": READY_RUNNERS}
        settings |= {"examiners_per_gpu": EXAMINERS_PER_GPU, "describes": self._store is not None}
        slot = WorkerSlot(lambda: self._start(settings, worker_id, gpu))
        while True:
            self._wait_until_started(slot, worker_id, gpu)
            job = self._to_examine.take(worker_id)
            if not job:
                break
            try:
                slot.start()
            except WorkerNotStarted as error:
                self._reassign(worker_id, gpu, job, str(error))
                continue
            start = time.monotonic()
            job.examiner = f"{worker_id} on GPU {gpu}"
            self._doing[worker_id] = job, start, slot
            try:
                request = functools.partial(self._examine_request, job)
                reply = slot.request(request, self._timeout_s, attempts=1)
                problem = reply.get("unhealthy", "")
            except WorkerCrashed as error:
                reply, problem = {}, str(error)
            self._doing.pop(worker_id)
            if problem:
                slot.kill()
                self._to_examine.forget(worker_id)
                self._retry(job, problem, reply)
                continue
            job.spans.append(["examiner", start, time.monotonic()])
            if "missing" in reply and job.may_lack(reply["missing"], _MAX_ROUNDS):
                job.rounds += 1
                job.missing += reply["missing"]
                self._to_compile.put(job)
            elif "inconclusive" in reply:
                job.exclusive, job.again = True, reply["inconclusive"]
                self._to_compile.put(job)
            else:
                self._end(job, reply, "")
        slot.kill()

    def _examine_request(self, job: Job) -> dict[str, Any]:
        body = {"task": dataclasses.asdict(job.task), "source": job.source}
        return body if job.source is None else body | {"kernels": str(job.folder), "exclusive": job.exclusive}

    def _start(self, settings: dict[str, Any], worker_id: int, gpu: str) -> Worker:
        worker = Worker(settings, self._secret, setup.visible(gpu))
        self._healthy.add(worker_id)
        self._missing_locks.show(worker)
        return worker

    def _wait_until_started(self, slot: WorkerSlot, worker_id: int, gpu: str) -> None:
        """Starts the examiner, however long that takes; meanwhile others do the work.

        Returns without an examiner where there are no others, or where the judge is being closed.
        """
        while not slot.running:
            try:
                slot.start()
            except WorkerNotStarted as error:
                if worker_id in self._healthy:
                    warnings.warn(f"judge: GPU {gpu} is left out until it is well: {error}", stacklevel=2)
                self._healthy.discard(worker_id)
                if not self._healthy or self._closing.wait(_RECOVERY_S):
                    return

    def _reassign(self, worker_id: int, gpu: str, job: Job, problem: str) -> None:
        """No examiner starts on this GPU: the job goes to another one, or ends where there is none."""
        self._to_examine.forget(worker_id)
        if self._healthy and not self._closing.is_set():
            self._to_examine.put(job)
        else:
            job.gpu_failed = True
            self._end(job, None, f"no examiner starts on GPU {gpu}: {problem}")

    def _retry(self, job: Job, problem: str, reply: dict[str, Any]) -> None:
        """The examiner died or gave up over this job. It is compiled and examined again, ATTEMPTS times in all.

        A submission that had the GPU for itself when the GPU failed, each time, is not excused by that: what was found
        of it stands.
        """
        job.attempts += 1
        job.gpu_failed = "unhealthy" in reply
        if job.attempts >= ATTEMPTS:
            self._end(job, reply if "verdict" in reply else None, problem)
        elif job.source is None:
            self._to_examine.put(job)
        else:
            self._to_compile.put(job)

    def _end(self, job: Job, reply: dict[str, Any] | None, problem: str) -> None:
        """Ends a job's future with the last reply; see settle."""
        if job.source is None:
            if reply is None:
                self._plans.pop(job.task.digest, None)  # says nothing of the task
            elif "plan" in reply:
                reply["plan"] |= {"spans": job.spans, "examiner": job.examiner}
            _settle_plan(job.plan, reply, problem)
            return
        if reply is not None and "missing" in reply:
            reply = _verdict_of_endless_kernels(reply["missing"], self._device)
        if reply is not None and "verdict" in reply:
            verdict = reply["verdict"]
            verdict["evidence"]["precision"] = job.task.precision
            if degenerate := job.plan.result().get("degenerate"):
                verdict["evidence"]["degenerate"] = degenerate
            if self._store:
                add_speedups(self._store, job.task, reply)
            job.note_cost(verdict)
        settle(job.future, reply, problem, self._device, "gpu_lost" if job.gpu_failed else "worker_lost")


def _holds_on_a_gpu(verdict: Verdict) -> bool:
    """Whether what the interpreter found at small sizes is so at the published ones."""
    here_alone = verdict.reason == "launch_without_effect" and not verdict.evidence.get("at_every_shape")
    return verdict.reason in SCREEN_REASONS and not here_alone


def _remove_stale_folders(base: Path) -> None:
    """Removes what judges left there that were killed."""
    for folder in base.glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _settle_plan(plan: Future, reply: dict[str, Any] | None, problem: str) -> None:
    if reply is None:
        plan.set_exception(NotPrepared(f"judge: a task could not be prepared: {problem}"))
    elif "error" in reply:
        plan.set_exception(DrKernelError(reply["error"]))
    else:
        plan.set_result(reply["plan"])


def _settle_unprepared(future: Future, error: BaseException, device: str) -> None:
    """Ends a submission whose task is not prepared: the task is unusable, or the judge has failed."""
    if isinstance(error, NotPrepared):
        future.set_result(judge_failure("not_prepared", str(error), device))
    else:
        future.set_exception(error)


def _settle_check(plan: Future, future: Future) -> None:
    """Ends the check of a task as its preparation ended."""
    if not future.set_running_or_notify_cancel():
        return
    if error := plan.exception():
        future.set_exception(error)
    else:
        future.set_result(plan.result().get("degenerate", ""))


def _verdict_of_endless_kernels(missing: list[dict[str, Any]], device: str) -> dict[str, Any]:
    detail = (
        f"kernel {missing[0].get('kernel')}: every call needs another specialisation, more than {_MAX_ROUNDS} of them"
    )
    return as_reply(Verdict("invalid", "runtime_error", detail, device=device))
