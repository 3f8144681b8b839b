"""The Judge: checks its arguments, remembers verdicts, and has a crew that does the judging."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from drkernel.judge.devices.simulated.backend import SimulatedBackend
from drkernel.judge.trusted import static_check
from drkernel.judge.trusted.worker_process import visible_gpus
from drkernel.types import DrKernelError, Task, Verdict

SHAPES = ("reject", "penalise", "ignore")
GPUS = ("H200", "H100", "A100")
DEVICES = ("auto", "simulated", "cuda")
TIMEOUT_S = {"simulated": 20.0, "cuda": 8.0}
"""A GPU waits for a submission that hangs; the interpreter is slow, and what it runs is compiled for GPUs elsewhere."""
_CACHED = 8192


class Judge:
    """Judges submissions in sandboxed one-shot processes. Use as a context manager, or call `close()`.

    Args:
        device: `simulated`, where times are modelled for `gpu`, or `cuda`, where they are measured; `auto`: see
            `placed`.
        gpu: the GPU that the simulated device models.
        gpus: the GPUs to measure on, as CUDA_VISIBLE_DEVICES names them; None: all that are visible. Nothing else may
            use them meanwhile, but for what `share` allows.
        share: the GPUs also serve processes that compute only while they hold `cuda.turns.floor`, as the engine of a
            training run does; verdicts say so in `evidence["shared_gpu"]`.
        workers: processes that judge at the same time; on `cuda`, that compile for the GPUs.
        secret: seeds derive from it; on the simulated device the same secret gives the same submission the same
            verdict, bit for bit (but for `seconds`). None draws a fresh one.
        timeout_s: longest wall time of one answer of a submission, and half of its CPU time in all; None: TIMEOUT_S.
        memory_mb: host memory that a submission may allocate.
        cache: remember verdicts by source (trailing white space apart) and task.
        lazy_below: speed-ups under this count as no real gain.
        shapes: what a wrong answer on another legal shape means: `reject`, `penalise` (ok, but not `general`), or
            `ignore` (not tried).
        gate: False skips the static checks, for tests: nothing may depend on them.
        price_hacks: go on with a hack whose answers are right, and time it, too: its status stays `hack`, but it has a
            speed-up. For studies of what a trusting judge would reward.
        screen: with `cuda`, answers that Triton's interpreter finds wrong on a CPU, or independent of their kernels,
            are refused without a GPU (`evidence["screened"]`); everything else is decided on the GPU. None: where
            `shapes` is `reject`.
        baselines: with `cuda`, a file of drkernel.judge.devices.cuda.baselines; verdicts on tasks in it then have the
            speed-up over eager with TF32 and over torch.compile in `evidence["speedup_over"]`.

    Raises:
        DrKernelError: for an unknown device, GPU or shape policy, for `cuda` without a GPU, for `gpus`, `share`,
            `screen` or `baselines` without `cuda`, for `screen` with other `shapes` than `reject` (the screen examines
            small ones), for baselines in a broken file.
    """

    def __init__(
        self,
        *,
        device: str = "simulated",
        gpu: str = "H200",
        gpus: Sequence[str | int] | None = None,
        share: bool = False,
        workers: int = 2,
        secret: bytes | None = None,
        timeout_s: float | None = None,
        memory_mb: int = 4096,
        cache: bool = True,
        lazy_below: float = 1.05,
        shapes: str = "reject",
        gate: bool = True,
        price_hacks: bool = False,
        screen: bool | None = None,
        baselines: str | Path | None = None,
    ):
        device, gpus = placed(device, gpus, share)
        for key, value, known in (("device", device, DEVICES), ("gpu", gpu, GPUS), ("shapes", shapes, SHAPES)):
            if value not in known:
                raise DrKernelError(f"judge: {key} is {value!r}, expected one of {', '.join(known)}")
        timeout_s = TIMEOUT_S[device] if timeout_s is None else timeout_s
        if workers < 1 or timeout_s <= 0:
            raise DrKernelError(f"judge: workers ({workers}) and timeout_s ({timeout_s}) must be positive")
        only = {"gpus": gpus, "share": share or None, "screen": screen or None, "baselines": baselines}
        for key, value in only.items():
            if value is not None and device != "cuda":
                raise DrKernelError(f"judge: {key} ({value}) needs device 'cuda', found {device!r}")
        if screen and shapes != "reject":
            raise DrKernelError(f"judge: screen examines other shapes, so it needs shapes 'reject', found {shapes!r}")
        screen = shapes == "reject" if screen is None else screen
        config = {"timeout_s": timeout_s, "lazy_below": lazy_below, "shapes": shapes, "gate": gate}
        config["price_hacks"] = price_hacks
        limits = {"memory_mb": memory_mb, "cpu_s": int(2 * timeout_s) + 1}
        secret, patience = secret or os.urandom(32), patience_s(timeout_s)
        if device == "cuda":
            from drkernel.judge.devices.cuda.backend import CudaBackend
            from drkernel.judge.devices.cuda.baselines import Store

            store = Store(baselines) if baselines is not None else None
            settings = {"config": config | {"device": "cuda"}, "limits": limits, "share": share}
            screeners = -(-workers // 2) if screen else 0
            self._crew: Any = CudaBackend(settings, secret, gpus, workers, patience, store, screeners)
        else:
            settings = {"config": config | {"device": f"simulated:{gpu}"}, "limits": limits}
            self._crew = SimulatedBackend(settings, secret, workers, patience)
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
                return self._crew.enqueue(task, _cut(source))
            if key in self._verdicts:
                self._verdicts.move_to_end(key)
                return self._verdicts[key]
            future = self._verdicts[key] = self._crew.enqueue(task, _cut(source))
            if len(self._verdicts) > _CACHED:
                self._verdicts.popitem(last=False)
            return future

    def judge(self, task: Task, source: str) -> Verdict:
        return self.submit(task, source).result()

    def check_task(self, task: Task) -> None:
        """DrKernelError where the reference fails, cannot be shrunk, or a trivial answer would pass for right."""
        self._expect_open()
        self._crew.enqueue(task, None).result()

    def close(self) -> None:
        """Ends the worker processes; submissions that still wait are cancelled."""
        if not self._closed:
            self._closed = True
            self._crew.close()

    def _expect_open(self) -> None:
        if self._closed:
            raise DrKernelError("judge: already closed")


def patience_s(timeout_s: float | None) -> float:
    """How long a worker may take for one submission, of which one answer may take `timeout_s`; it is tried twice."""
    return 60 + 20 * (max(TIMEOUT_S.values()) if timeout_s is None else timeout_s)


def placed(
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


def _cut(source: str) -> str:
    """Enough of a source to see that it is too large."""
    return source[: static_check.MAX_SOURCE + 1]
