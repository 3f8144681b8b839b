"""The examiner of a GPU: a trusted worker process that examines submissions, one after the other, and runs this module.

Several examiners may share a GPU. Correctness checks of two submissions overlap; timing is exclusive (gpu_lock.py), and
the other examiners' runners are stopped meanwhile. What another examination on the GPU may have caused is not held
against a submission: it is examined again with the GPU for itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from drkernel.judge.boundary import tf32, warm_up
from drkernel.judge.boundary.cuda import setup
from drkernel.judge.boundary.sandbox import Limits
from drkernel.judge.devices.cuda import baselines, calibration
from drkernel.judge.devices.cuda.buffers import DeviceBuffers
from drkernel.judge.devices.cuda.device import CudaDevice, CudaPreparedTask
from drkernel.judge.devices.cuda.gpu_lock import GpuBusy, GpuLease, GpuUnhealthy
from drkernel.judge.devices.cuda.memory_ledger import MemoryLedger, expect_memory, expect_promised, expect_room
from drkernel.judge.devices.cuda.runner_pool import RunnerLease, RunnerPool, multiplies
from drkernel.judge.trusted import ptx_scan, spent
from drkernel.judge.trusted.criterion import Finding
from drkernel.judge.trusted.exam_config import ExamConfig
from drkernel.judge.trusted.judging import Judging
from drkernel.judge.trusted.prepare import PreparedTaskCache, expect_usable
from drkernel.judge.trusted.processes.failures import Missing
from drkernel.judge.trusted.processes.zygote import ProcessSpec, Zygote
from drkernel.judge.trusted.sizes.footprint import Footprint, large_from
from drkernel.judge.trusted.verdicts import as_reply, verdict_of_crash
from drkernel.types import DrKernelError, Task, Verdict

_RUNNER = "drkernel.judge.untrusted.cuda.runner"
PROCESS_SPEC = ProcessSpec(f"{_RUNNER}:prepare", f"{_RUNNER}:main", areas=1, gpu=True)
_MAX_PREPARED_TASKS = 64
_RELEASE_S = 0.2
"""Seconds that a killed runner may take to give its part of the GPU back."""
_MEMORY, _SHARED_MEMORY, _AREAS, _BESIDE = 0.6, 0.45, 0.25, 2**21
"""Fractions of the GPU's memory: for a runner that has the GPU for itself, for all runners that have not, and for the
examiners' areas; bytes of an area beside two calls that are not large."""
_USABLE, _IDLE_BYTES, _KEPT = 0.96, 4 * 2**30, 1 / 32
"""The proportion of a GPU's memory that can be allocated; what an examiner and its waiting runners hold of it besides
areas and shared cases; and the proportion that each examiner's shared cases may take."""
_IDLE_S, _WARM_CYCLES, _DESCRIBED_S = 0.5, 20_000_000, 600.0
"""After so many idle seconds the GPU is kept busy for so many cycles before an examination. Seconds for which the
description of the GPU's speed holds."""
_PROBE_US, _PROBE_S, _SHARED_PROBE_S = 400.0, 30.0, 0.2
"""A tiny kernel takes about 15 us on a free GPU, and a time slice of 2 ms beside another process that computes. Seconds
for which the probe is repeated."""
_PROBE_KERNELS, _STEADY_PROBES = 15, 20
"""Tiny kernels of one probe, and consecutive fast probes that are required of an exclusive GPU: one can pass by chance
in 30 s."""
_INCONCLUSIVE = ("background_work", "forged_time", "timeout")
"""Reasons that another process on the GPU may bring about."""


class GpuExaminer:
    """Judges submissions one at a time. Trusted: holds the secret, the references, the expected outputs and the clock.

    Args:
        scratch: a private folder; compiled kernels come in beneath it.
        ready_runners: runners that are kept ready.
        examiners_per_gpu: examiners on this GPU.
        colocated: the GPU trains as well, so examiners take half as much of its memory.
        describes: replies say what the GPU is and how fast it is now, which baselines need.
    """

    def __init__(
        self,
        zygote: Zygote,
        config: ExamConfig,
        secret: bytes,
        scratch: Path,
        ready_runners: int,
        examiners_per_gpu: int,
        colocated: bool,
        describes: bool,
    ):
        self.secret = secret
        self.config = dataclasses.replace(config, device=f"cuda:{torch.cuda.get_device_name()}")
        gpu = torch.cuda.get_device_properties(0)
        self._colocated, self._memory = colocated, 0.5 if colocated else 1.0
        """Fraction of the GPU's memory that examiners and runners may take."""
        share = self._memory * gpu.total_memory / examiners_per_gpu
        self._buffers = DeviceBuffers(min(2 * large_from(share) + _BESIDE, int(_AREAS * share / 4)), large_from(share))
        whole = config.memory_gib * 2**30 if config.memory_gib else _USABLE * self._memory * gpu.total_memory
        kept = int(_KEPT * whole)
        self._cache = PreparedTaskCache[CudaPreparedTask](_MAX_PREPARED_TASKS, kept)
        self._total = whole / gpu.total_memory
        """Fraction of the GPU's memory that examiners and runners of this GPU may take together."""
        idle = examiners_per_gpu * (_IDLE_BYTES + 4 * self._buffers.own_in.size + kept)
        self._ledger = MemoryLedger(gpu.uuid, max(2**30, int(whole - idle)))
        self._pool = RunnerPool(zygote, scratch, ready_runners, self._buffers)
        self._examiners = examiners_per_gpu
        self._lease = GpuLease(gpu.uuid, self._probe, self._quiet)
        self._device = CudaDevice(secret, self._buffers, self._lease, self._pause, config.timed_shapes)
        self._last_ended = 0.0
        """When the last examination ended."""
        self._stages: dict[str, float] = {}
        """Milliseconds of its stages."""
        self._machine: dict[str, Any] | None = None
        with self._lease.hold(exclusive=True):
            self._calibrate()
            if describes:
                self._describe()

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request: that of `judge`, {"plan": ...} where it has no source, {"error": ...} where the task
        is unusable, or {"unhealthy": ...} where the GPU is, with the verdict that stands if that happens again."""
        task = Task(**body["task"])
        try:
            if body["source"] is None:
                return {"plan": self.prepare(task)}
            return self.judge(task, body["source"], Path(body["kernels"]), body["exclusive"])
        except DrKernelError as error:
            return {"error": str(error)}
        except GpuUnhealthy as error:
            return {"unhealthy": str(error)} | (as_reply(error.verdict) if error.verdict else {})

    def prepare(self, task: Task) -> dict[str, Any]:
        """What the compile stage needs to know: the shapes that submissions will meet, and the modes. Raises
        DrKernelError where the task is unusable."""
        prepared = self._prepared_task(task)
        return {
            "source": prepared.task.source,
            "hidden": [reference.constants for reference in prepared.elsewhere()],
            "modes": [list(modes) for modes in prepared.mode_alternatives],
            "degenerate": prepared.degenerate,
            "stages": spent.taken(),
        }

    def _prepared_task(self, task: Task) -> CudaPreparedTask:
        """The prepared task, at a time when the GPU may be used for its preparation."""
        if task in self._cache:
            return self._cached(task)
        needs = self._device.needs(task)
        if needs.large:
            expect_room(task, needs, self._ledger.limit)
        for exclusive in (False, True):
            try:
                with self._ledger.hold(self._share(needs, needs.least)), self._room(exclusive, needs):
                    if self._machine and time.monotonic() > self._described + _DESCRIBED_S:
                        with self._lease.exclusively(), self._quiet():
                            self._describe()
                    return self._cached(task)
            except GpuBusy:
                if exclusive:
                    raise
            torch.cuda.empty_cache()  # not before the error is gone, which keeps its frames' tensors
        raise AssertionError

    def _fit(self, exclusive: bool, needs: Footprint) -> None:
        """Makes room for a task's calls, once killed runners have given theirs back."""
        if not self._buffers.fits(needs):
            self._release()
            expect_memory(exclusive, lambda: self._buffers.fit(needs))

    def _free_large(self) -> None:
        """Frees what a large task took, for which other examiners may wait."""
        if self._buffers.large:
            self._release()
            self._buffers.fit(Footprint(0, 0, 0))
            torch.cuda.empty_cache()

    @contextlib.contextmanager
    def _room(self, exclusive: bool, needs: Footprint) -> Iterator[None]:
        """The GPU, with room for a task's calls."""
        with self._lease.hold(exclusive):
            self._fit(exclusive, needs)
            try:
                yield
            finally:
                self._free_large()

    def _release(self) -> None:
        while self._pool.terminating:
            self._pool.terminating.pop().wait_released(_RELEASE_S)

    def _share(self, needs: Footprint, size: int) -> int:
        """What an examination holds of the GPU's memory: what a large task needs, or an equal part."""
        return size if needs.large else self._ledger.limit // self._examiners

    def judge(self, task: Task, source: str, kernels: Path, exclusive: bool) -> dict[str, Any]:
        """{"verdict": ...}, {"missing": ...} where the submission launches what has not been compiled, or
        {"inconclusive": ...} where another examination may have caused what was seen.

        Args:
            kernels: its compiled kernels; the folder is used up.
            exclusive: no other examination holds the GPU meanwhile, so that nothing is inconclusive.

        Raises:
            DrKernelError: the task is unusable.
            GpuUnhealthy: the GPU cannot be trusted with a measurement.
        """
        needs = self._prepared_task(task).footprint
        size = self._ledger.limit if exclusive else self._share(needs, needs.usual)
        with self._ledger.hold(size) as waited_s:
            try:
                self._fit(exclusive, needs)
                return self._judge(task, source, kernels, exclusive, needs, waited_s)
            except GpuBusy as busy:  # of `_fit`: others use the GPU, too
                return {"inconclusive": f"GpuBusy: {busy}"}
            finally:
                shutil.rmtree(kernels, ignore_errors=True)
                self._free_large()

    def _judge(
        self, task: Task, source: str, kernels: Path, exclusive: bool, needs: Footprint, waited_s: float
    ) -> dict[str, Any]:
        """As `judge`, once the task is prepared and there is memory."""
        judging = Judging(self.config, self.secret, task, source)
        start = time.monotonic() - waited_s
        memory = self._total * (_MEMORY if exclusive else _SHARED_MEMORY / self._examiners)
        if needs.large:
            total = torch.cuda.get_device_properties(0).total_memory
            held = self._ledger.limit if exclusive else min(needs.usual, self._ledger.limit)
            memory = max(memory, (held - needs.judge) / total)
        runners = RunnerLease(self._pool, memory, multiplies(source))
        ready = time.monotonic()
        verdict, kernelbench, ending, inconclusive, lease = None, None, "", "", self._lease
        try:
            products = ptx_scan.take(kernels)
            runners.adopt(kernels)
            with lease.hold(exclusive):
                began = time.monotonic()
                lease.stop_runner = lambda: runners.process.stopped()
                try:
                    self._warm()
                    examine = lambda: self._examined(judging, runners, products)
                    checked = self.config.criterion == "drkernel"  # else a compile worker lets forbidden sources pass
                    verdict, kernelbench = judging.ask(examine, lambda: self._tried(judging, runners), checked, True)
                finally:
                    ended = time.monotonic()
                    ending = runners.end()
                    self._last_ended = ended
                verdict = verdict or verdict_of_crash(ending)
                self._expect_conclusive(verdict, memory)
                if kernelbench and not exclusive:
                    self._expect_conclusive(kernelbench.verdict, memory)
        except Missing as error:
            return {"missing": error.kernels}
        except (GpuBusy, GpuUnhealthy) as error:
            if exclusive:
                raise
            inconclusive = f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(runners.folder, ignore_errors=True)
        if inconclusive:
            torch.cuda.empty_cache()
            return {"inconclusive": inconclusive}
        assert verdict
        took_s = {"wait": ready - start + lease.waited_s, "exam": ended - began, "gpu": lease.exclusive_s}
        cost: dict[str, Any] = {key: round(1e3 * seconds, 2) for key, seconds in took_s.items()}
        cost |= {key: round(ms, 2) for key, ms in self._stages.items()} | {"spans": [["exam", began, ended]]}
        evidence = {"shared_gpu": self._colocated, "cost": cost | {"reruns": spent.taken()}}
        return as_reply(judging.decided(verdict, kernelbench, evidence)) | {"machine": self._machine}

    def _expect_conclusive(self, verdict: Verdict, memory: float) -> None:
        """Asks whether something else than the submission, whose process has ended, may be the cause of a verdict.

        Args:
            memory: the fraction of the GPU's memory that it could allocate.

        Raises:
            GpuBusy, GpuUnhealthy: it may be. Where the GPU fails after a submission that had it for itself, the error
                has the verdict, which stands if that happens again.
        """
        uneven = verdict.evidence.get("timing", {}).get("uneven")
        no_memory = verdict.status == "invalid" and "out of memory" in verdict.detail
        doubtful = verdict.reason in _INCONCLUSIVE[:2] or no_memory
        if not self._lease.exclusive and (doubtful or uneven or verdict.evidence.get("together")):
            raise GpuBusy(verdict.reason)
        if no_memory:
            self._release()
            expect_promised(memory)
        try:
            if verdict.reason in _INCONCLUSIVE:
                self._probe(self._lease.exclusive)
            elif verdict.status == "invalid":
                _expect_alive()
        except GpuUnhealthy as error:
            error.verdict = dataclasses.replace(verdict, device=self.config.device)
            raise

    def _examined(self, judging: Judging, runners: RunnerLease, products: frozenset[str]) -> Verdict:
        given = self._device, self._cached(judging.task), runners.process, judging.source, runners.replace, products
        exam = judging.examination(*given)
        try:
            run = functools.partial(tf32.as_allowed_by, judging.task.precision, exam.run)
            verdict = expect_memory(self._lease.exclusive, run)
        finally:
            self._stages = exam.stages
        return dataclasses.replace(verdict, evidence=verdict.evidence | {"training": exam.modes[0]})

    def _tried(self, judging: Judging, runners: RunnerLease) -> Finding:
        """What KernelBench's criterion says. The submission has a new runner afterwards."""
        given = self._device, self._cached(judging.task), runners.process, judging.source, runners.replace
        run = functools.partial(tf32.as_allowed_by, judging.task.precision, judging.trials(*given).run)
        found = expect_memory(self._lease.exclusive, run)
        runners.replace()
        return found

    def _cached(self, task: Task) -> CudaPreparedTask:
        """The prepared task, from the cache where possible."""
        prepare = functools.partial(tf32.as_allowed_by, task.precision, self._device.prepare, task)
        made = lambda: expect_usable(expect_memory(self._lease.exclusive, prepare), self.config.degenerate)
        return self._cache.get(task, made)

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        """No CUDA context is created on the GPU meanwhile, and none is destroyed."""
        self._release()
        with self._pool.paused():
            yield

    def _pause(self) -> float:
        """Lets others hold the GPU exclusively. While a killed runner of this process still has part of the GPU, it
        goes on, since others would have to wait for that, too."""
        releasing = time.monotonic() < self._last_ended + _RELEASE_S and self._pool.releasing
        return 0.0 if releasing else self._lease.pause()

    def _warm(self) -> None:
        """An idle GPU clocks down."""
        if time.monotonic() - self._last_ended > _IDLE_S:
            torch.cuda._sleep(_WARM_CYCLES)

    def _probe(self, exclusive: bool) -> None:
        """Waits until a tiny kernel is as fast as on a free GPU.

        Raises:
            GpuBusy: it stays slow, and others use the GPU, too.
            GpuUnhealthy: it stays slow although the GPU is held exclusively, or the GPU fails.
        """
        timeout_s, required = (_PROBE_S, _STEADY_PROBES) if exclusive else (_SHARED_PROBE_S, 1)
        deadline, fast = time.monotonic() + timeout_s, 0
        try:
            torch.cuda.synchronize()
            while time.monotonic() < deadline:
                fast = fast + 1 if statistics.median(_tiny_us() for _ in range(_PROBE_KERNELS)) < _PROBE_US else 0
                if fast == required:
                    return
                time.sleep(0.002)
        except RuntimeError as error:
            raise GpuUnhealthy(f"the GPU fails: {error}") from error
        slow = f"a tiny kernel still takes more than {_PROBE_US:g} us after {timeout_s:g} s"
        raise GpuUnhealthy(slow) if exclusive else GpuBusy(slow)

    def _describe(self) -> None:
        """Notes what the GPU is, and how fast it is now; see baselines."""
        self._machine, self._described = baselines.today(), time.monotonic()

    def _calibrate(self) -> None:
        """Measures how much longer calls usually take by the trusted clock than by a runner's events, on a trusted
        submission. Compares and prepares once, so that all that is imported or compiled lazily is there."""
        calibration.compile_comparisons()
        task = Task("calibration", warm_up.CALIBRATION.replace("ModelNew", "Model"))
        prepared = self._cached(task)
        process, folder = self._pool.take(self._memory * _MEMORY)
        try:
            with self._lease.exclusively(), self._quiet():
                calibration.measure_single_calls(process, prepared, self._buffers)
        finally:
            process.end()
            self._pool.terminating.append(process)
            shutil.rmtree(folder, ignore_errors=True)


def set_up(settings: dict[str, Any]) -> tuple[list[str], Callable[[bytes], GpuExaminer]]:
    """The sandbox locks that this machine lacks, and what makes the examiner from the secret. The zygote knows none."""
    zygote = Zygote(Limits(**settings["limits"]), PROCESS_SPEC)
    missing, scratch = zygote.wait_ready(), Path(settings["scratch"])
    os.environ["TRITON_CACHE_DIR"] = str(scratch / "examiner")
    setup.start(everywhere=False)
    options = {key: settings[key] for key in ("ready_runners", "examiners_per_gpu", "colocated", "describes")}
    return missing, lambda secret: GpuExaminer(zygote, ExamConfig(**settings["config"]), secret, scratch, **options)


def _expect_alive() -> None:
    """Raises GpuUnhealthy where the GPU does not even serve this process any more."""
    try:
        _tiny_us()
    except RuntimeError as error:
        raise GpuUnhealthy(f"the GPU fails: {error}") from error


def _tiny_us() -> float:
    start = time.perf_counter()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - start)
