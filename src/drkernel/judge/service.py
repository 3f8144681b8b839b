"""The Judge: checks its arguments, caches verdicts, and has a backend that does the judging.

It runs in the process of its user, which executes no submission.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from drkernel.judge.boundary.framing import MAX_SOURCE
from drkernel.judge.devices.simulated.backend import SimulatedBackend
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.interface import Backend
from drkernel.judge.trusted import static_check
from drkernel.judge.trusted.criterion import CRITERIA
from drkernel.judge.trusted.prepare import DEGENERATE
from drkernel.judge.trusted.shape_times import ACROSS
from drkernel.judge.trusted.timed_shapes import MOST
from drkernel.judge.trusted.verdicts import reason_of
from drkernel.judge.trusted.worker_process import visible_gpus
from drkernel.types import DrKernelError, Task, Verdict

SHAPES = ("reject", "penalise", "ignore")
DEVICES = ("auto", "simulated", "cuda")
TIMEOUT_S = {"simulated": 20.0, "cuda": 8.0}
"""Default of `timeout_s` by device. On a GPU it is short, since the GPU waits for a submission that hangs, and kernels
are compiled before. Triton's interpreter is slow."""
_MAX_CACHED = 8192


class Judge:
    """Judges submissions in sandboxed one-shot processes. Use as a context manager, or call `close()`.

    Args:
        device: `simulated`, where times are modelled for `gpu`, or `cuda`, where they are measured; `auto`: see
            `choose_device`.
        gpu: the GPU that the simulated device models.
        gpus: the GPUs to measure on, as CUDA_VISIBLE_DEVICES names them; None: all that are visible. Nothing else may
            use them meanwhile, except for what `share` allows.
        share: the GPUs also serve processes that compute only while they hold `devices.cuda.gpu_lock.gpu_lock`, as the
            engine of a training run does. Verdicts say so in `evidence["shared_gpu"]`.
        workers: processes that judge at the same time; on `cuda`, that compile for the GPUs; None: `choose_workers`.
        secret: seeds derive from it; on the simulated device the same secret gives the same submission the same
            verdict, bit for bit (except for `seconds`). None draws a new one.
        timeout_s: longest wall time of one reply of a submission, and half of its CPU time in all; None: TIMEOUT_S.
        memory_mb: host memory that a submission may allocate.
        memory_gb: with `cuda`, GiB of each GPU's memory that examiners and submissions may take together; None: nearly
            all, half with `share`. Examinations that do not fit beside each other take turns. A task that does not fit
            alone is unusable.
        cache: keep verdicts by source (without trailing white space) and task.
        lazy_below: speed-ups under this count as no real gain.
        shapes: what a submission gets that fails on another legal shape: `reject` (wrong outputs refuse it, a clear
            error does not), `penalise` (either is ok, but not `general`, and its speed-up counts as at most 1, see
            `penalised`), or `ignore` (not tried).
        timed_shapes: at how many shapes of its task a submission is timed, 1 to 4: the published one and others. More
            than one needs `shapes` `reject` or `penalise`.
        across_shapes: how the speed-ups at several shapes become one: `geometric`, their mean, or `worst`.
        gate: False skips the static checks, for tests: nothing may depend on them.
        criterion: what decides: `drkernel`; `both`, where verdicts also have what KernelBench's criterion says in
            `evidence["kernelbench"]`; `kernelbench`, where that decides and `evidence["drkernel"]` has this judge's
            own verdict. See trusted/criterion.py.
        degenerate: what becomes of a task that trivial outputs would pass: `refuse`, an error, or `mark`, where its
            verdicts say so in `evidence["degenerate"]`.
        price_hacks: continue with a hack whose outputs are right, and time it, too. Its status stays `hack`, but it has
            a speed-up. For studies of what a trusting judge would reward.
        screen: with `cuda`, submissions whose outputs Triton's interpreter finds wrong on a CPU, or independent of
            their kernels, are refused without a GPU (`evidence["screened"]`). Everything else is decided on the GPU.
            None: True where `shapes` is `reject` and `criterion` is `drkernel`.
        baselines: with `cuda`, a file of drkernel.judge.devices.cuda.baselines; verdicts on tasks in it then have the
            speed-up over eager with TF32 and over torch.compile in `evidence["speedup_over"]`.

    Raises:
        DrKernelError: for an unknown word of a setting, for `cuda` without a GPU, for `gpus`, `share`, `screen` or
            `baselines` without `cuda`, for `timed_shapes` out of range or with `shapes` `ignore`, for `screen` with
            other `shapes` than `reject` (the screen examines small ones) or another `criterion` than `drkernel`, for
            baselines in a broken file.
    """

    def __init__(
        self,
        *,
        device: str = "simulated",
        gpu: str = "H200",
        gpus: Sequence[str | int] | None = None,
        share: bool = False,
        workers: int | None = 2,
        secret: bytes | None = None,
        timeout_s: float | None = None,
        memory_mb: int = 4096,
        memory_gb: float | None = None,
        cache: bool = True,
        lazy_below: float = 1.05,
        shapes: str = "reject",
        timed_shapes: int = 1,
        across_shapes: str = "geometric",
        gate: bool = True,
        criterion: str = "drkernel",
        degenerate: str = "refuse",
        price_hacks: bool = False,
        screen: bool | None = None,
        baselines: str | Path | None = None,
    ):
        device, gpus = choose_device(device, gpus, share)
        workers = choose_workers(workers, device, gpus)
        chosen: dict[str, tuple[str, tuple[str, ...]]]
        chosen = {"device": (device, DEVICES), "gpu": (gpu, tuple(GPUS)), "shapes": (shapes, SHAPES)}
        chosen |= {"criterion": (criterion, CRITERIA), "degenerate": (degenerate, DEGENERATE)}
        chosen["across_shapes"] = (across_shapes, tuple(ACROSS))
        for key, (choice, known) in chosen.items():
            if choice not in known:
                raise DrKernelError(f"judge: {key} is {choice!r}, expected one of {', '.join(known)}")
        expect_shapes(timed_shapes, shapes)
        timeout_s = TIMEOUT_S[device] if timeout_s is None else timeout_s
        if workers < 1 or timeout_s <= 0:
            raise DrKernelError(f"judge: workers ({workers}) and timeout_s ({timeout_s}) must be positive")
        if memory_gb is not None and memory_gb <= 0:
            raise DrKernelError(f"judge: memory_gb is {memory_gb}, expected a positive number of GiB")
        only: dict[str, Any] = {"gpus": gpus, "share": share or None, "screen": screen or None, "baselines": baselines}
        only["memory_gb"] = memory_gb
        for key, value in only.items():
            if value is not None and device != "cuda":
                raise DrKernelError(f"judge: {key} ({value}) needs device 'cuda', found {device!r}")
        if screen and shapes != "reject":
            raise DrKernelError(f"judge: screen examines other shapes, so it needs shapes 'reject', found {shapes!r}")
        if screen and criterion != "drkernel":
            raise DrKernelError(f"judge: screen needs criterion 'drkernel', found {criterion!r}")
        screen = (shapes, criterion) == ("reject", "drkernel") if screen is None else screen
        config: dict[str, Any] = {"timeout_s": timeout_s, "lazy_below": lazy_below, "shapes": shapes, "gate": gate}
        config |= {"price_hacks": price_hacks, "criterion": criterion, "degenerate": degenerate, "memory_gb": memory_gb}
        config |= {"timed_shapes": timed_shapes, "across_shapes": across_shapes}
        limits = {"memory_mb": memory_mb, "cpu_s": int(2 * timeout_s) + 1}
        secret, worker_timeout_s = secret or os.urandom(32), longest_s(timeout_s)
        settings: dict[str, Any]
        self._backend: Backend
        if device == "cuda":
            from drkernel.judge.devices.cuda.backend import CudaBackend
            from drkernel.judge.devices.cuda.baselines import Store

            store = Store(baselines) if baselines is not None else None
            settings = {"config": config | {"device": "cuda"}, "limits": limits, "colocated": share}
            screen_workers = -(-workers // 2) if screen else 0
            self._backend = CudaBackend(settings, secret, gpus, workers, worker_timeout_s, store, screen_workers)
        else:
            settings = {"config": config | {"device": f"simulated:{gpu}"}, "limits": limits}
            self._backend = SimulatedBackend(settings, secret, workers, worker_timeout_s)
        self._penalises, self._lazy_below = shapes == "penalise", lazy_below
        self._verdicts: OrderedDict[tuple, Future] | None = OrderedDict() if cache else None
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def submit(self, task: Task, source: str) -> Future[Verdict]:
        """Judges in the background. The future raises DrKernelError where the task is unusable."""
        key = (static_check.digest(source), task.digest)
        with self._lock:
            self._expect_open()
            if self._verdicts is None:
                return self._verdict_to_come(task, source)
            if key in self._verdicts:
                self._verdicts.move_to_end(key)
                return self._verdicts[key]
            future = self._verdicts[key] = self._verdict_to_come(task, source)
            if len(self._verdicts) > _MAX_CACHED:
                self._verdicts.popitem(last=False)
        future.add_done_callback(lambda done: self._forget_failure(key, done))
        return future

    def _verdict_to_come(self, task: Task, source: str) -> Future[Verdict]:
        """The backend's verdict, as it counts."""
        future = self._backend.enqueue(task, _shortened(source))
        return _mapped(future, lambda verdict: penalised(verdict, self._lazy_below)) if self._penalises else future

    def _forget_failure(self, key: tuple, done: Future) -> None:
        """A failure of the judge is not kept: who asks again gets another attempt."""
        failed = done.cancelled() or isinstance(done.exception(), Exception) or done.result().is_judge_failure
        with self._lock:
            if failed and self._verdicts is not None and self._verdicts.get(key) is done:
                del self._verdicts[key]

    def judge(self, task: Task, source: str) -> Verdict:
        return self.submit(task, source).result()

    def check_task(self, task: Task) -> str:
        """Which trivial outputs would pass on a task, in words; empty where none would.

        Raises:
            DrKernelError: the reference fails or cannot be shrunk, or the task is refused; NotPrepared, which is one,
                where the judge failed.
        """
        with self._lock:
            self._expect_open()
            future = self._backend.enqueue(task, None)
        return future.result()

    def doing(self) -> list[str]:
        """What each examiner of a GPU does now, and for how long; each writes its stack to its standard error. For
        people who wonder why no verdict comes."""
        return self._backend.doing()

    def close(self) -> None:
        """Ends the worker processes; submissions that still wait are cancelled."""
        with self._lock:  # what was accepted is in the backend's queues now, and nothing more will be
            if self._closed:
                return
            self._closed = True
        self._backend.close()

    def _expect_open(self) -> None:
        if self._closed:
            raise DrKernelError("judge: already closed")


def penalised(verdict: Verdict, lazy_below: float) -> Verdict:
    """The verdict as it counts with `shapes="penalise"`: a submission that is not `general` is no faster than the
    reference, which its user would call at the other shapes. `evidence["measured_speedup"]` keeps what was measured.

    >>> fast = Verdict("ok", "faster", speedup=2.0, general=False)
    >>> counted = penalised(fast, lazy_below=1.05)
    >>> counted.speedup, counted.reason, counted.evidence
    (1.0, 'lazy', {'measured_speedup': 2.0})
    """
    if verdict.general or verdict.speedup is None or verdict.speedup <= 1:
        return verdict
    evidence = verdict.evidence | {"measured_speedup": verdict.speedup}
    if others := evidence.get("speedup_over"):
        evidence["speedup_over"] = {name: min(1.0, speedup) for name, speedup in others.items()}
    counted = dataclasses.replace(verdict, speedup=1.0, evidence=evidence)
    if not verdict.ok:
        return counted
    lazy = lazy_below > 1
    return dataclasses.replace(counted, lazy=lazy, reason=reason_of(1.0, lazy))


def _mapped(future: Future, change: Callable[[Any], Any]) -> Future:
    """A future of what `change` makes of the result; errors and a cancellation pass through."""
    changed: Future = Future()
    changed.set_running_or_notify_cancel()

    def pass_on(done: Future) -> None:
        try:
            changed.set_result(change(done.result()))
        except BaseException as error:
            changed.set_exception(error)

    future.add_done_callback(pass_on)
    return changed


def longest_s(timeout_s: float | None) -> float:
    """Seconds that a worker may take for one submission, of which one reply may take `timeout_s`. It is tried twice."""
    return 60 + 20 * (max(TIMEOUT_S.values()) if timeout_s is None else timeout_s)


def expect_shapes(timed_shapes: int, shapes: str) -> None:
    """Raises DrKernelError where a submission cannot be timed at so many shapes."""
    if not 1 <= timed_shapes <= MOST:
        raise DrKernelError(f"judge: timed_shapes is {timed_shapes}, expected 1 to {MOST}")
    if timed_shapes > 1 and shapes == "ignore":
        raise DrKernelError(f"judge: timed_shapes ({timed_shapes}) needs shapes 'reject' or 'penalise', found 'ignore'")


def choose_device(
    device: str, gpus: Sequence[str | int] | None, share: bool
) -> tuple[str, list[str] | Sequence[str | int] | None]:
    """The device and the GPUs that a judge measures on.

    `auto` measures on the last GPU where there are several (training takes the first ones) and on all that are visible
    where they are shared with training; without such GPUs it simulates.
    """
    visible = visible_gpus()
    if device == "auto" and (share or gpus or len(visible) > 1) and visible:
        return "cuda", gpus or (visible if share else visible[-1:])
    if device == "auto":
        return "simulated", gpus
    return device, visible if device == "cuda" and gpus is None else gpus


def choose_workers(workers: int | None, device: str, gpus: Sequence[str | int] | None) -> int:
    """How many processes judge, or compile for `gpus`: what is given, else 2; on `cuda` ten for each GPU, which keep it
    busy, but at most three quarters of the cores."""
    if workers is not None or device != "cuda":
        return 2 if workers is None else workers
    return max(2, min(10 * len(gpus or (0,)), 3 * len(os.sched_getaffinity(0)) // 4))


def _shortened(source: str) -> str:
    """Enough of a source to see that it is too large."""
    return source[: MAX_SOURCE + 1]
