"""A trusted process that examines submissions on a GPU, one after the other; several may share a GPU.

Whether answers are right is asked while other examiners ask the same of other submissions; the clock runs alone
(turns.py), while the others' runners are stopped. What a neighbour on the GPU may have caused is not held against a
submission: it is examined again with nobody beside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy
import torch

from drkernel.judge.boundary.framing import PeerClosed
from drkernel.judge.boundary.zygote import Process, ProcessSpec, Zygote
from drkernel.judge.devices.cuda import baselines, device, fused, interleaving
from drkernel.judge.devices.cuda.buffers import DeviceBuffers
from drkernel.judge.devices.cuda.device import CudaDevice, CudaPreparedTask
from drkernel.judge.devices.cuda.gpu_lock import GpuBusy, GpuLease, GpuUnhealthy
from drkernel.judge.devices.cuda.runner_pool import Pool, RunnerLease, multiplies
from drkernel.judge.devices.cuda.timer import PairedTimer
from drkernel.judge.trusted import cases, static_check
from drkernel.judge.trusted.cases import Seeds
from drkernel.judge.trusted.examination import ExamConfig, Examination, deferred_refusal
from drkernel.judge.trusted.prepare import PreparedTaskCache
from drkernel.judge.trusted.runner_client import Missing, RunnerClient
from drkernel.judge.trusted.verdicts import verdict_of_crash
from drkernel.judge.untrusted.cuda import runner
from drkernel.types import DrKernelError, Task, Verdict

T = TypeVar("T")

PROCESS_SPEC = ProcessSpec(runner.prepare, runner.main, areas=0, gpu=True)
_PAPERS, _START_S, _BURIED_S = 64, 60.0, 0.2
_MEMORY, _SHARED_MEMORY, _AREAS, _AREA = 0.6, 0.45, 0.25, 2**32
"""Shares of the GPU's memory: for a runner that is alone, for all that are not, and for the examiners' areas; bytes of
the largest area."""
_IDLE_S, _WARM_CYCLES = 0.5, 20_000_000
_DESCRIBED_S = 600.0
"""How long the description of the GPU's speed holds."""
_PROBE_US, _PROBE_S, _CROWDED_S = 400.0, 30.0, 0.2
"""A tiny kernel takes about 15 us on a free GPU, and a time slice of 2 ms beside another process that computes."""
_PROBES, _STEADY = 15, 20
"""Tiny kernels of one look at the GPU, and looks that must agree where patience lasts: in 30 s one alone is lucky."""
_DOUBTFUL = ("background_work", "forged_time", "timeout")
"""What a neighbour on the GPU may bring about."""


def with_room(sole: bool, work: Callable[[], T]) -> T:
    """Where the GPU's memory gives out here, in the trusted process, neither task nor submission is to blame.

    Raises:
        GpuBusy, or GpuUnhealthy where nobody else is there.
    """
    try:
        return work()
    except (torch.OutOfMemoryError, DrKernelError) as error:
        found = _memory_lacked(error)
        if not found:
            raise
        raise (GpuUnhealthy if sole else GpuBusy)(f"no room is left on the GPU: {found}") from error


def _memory_lacked(error: BaseException) -> str:
    """What the allocator says, where that is the cause."""
    while error.__cause__:
        error = error.__cause__
    return str(error).partition(" Process")[0] if isinstance(error, torch.OutOfMemoryError) else ""


class GpuExaminer:
    """Judges submissions one at a time. Trusted: holds the secret, the references, the expected answers and the clock.

    Args:
        scratch: a private folder; compiled kernels come in beneath it.
        spare: runners that are kept ready.
        sharing: examiners on this GPU.
        share: the GPU trains as well, so they take half as much of its memory.
        describes: answers say what the GPU is and how fast it is now, which baselines need.
    """

    def __init__(
        self,
        zygote: Zygote,
        config: ExamConfig,
        secret: bytes,
        scratch: Path,
        spare: int,
        sharing: int,
        share: bool,
        describes: bool,
    ):
        self.secret = secret
        self.config = dataclasses.replace(config, device=f"cuda:{torch.cuda.get_device_name()}")
        self._cache = PreparedTaskCache[CudaPreparedTask](_PAPERS)
        gpu = torch.cuda.get_device_properties(0)
        self._share, self._part = share, 0.5 if share else 1.0
        self._buffers = DeviceBuffers(min(_AREA, int(self._part * _AREAS * gpu.total_memory / sharing / 4)))
        self._pool = Pool(zygote, scratch, spare, self._buffers)
        self._sharing = sharing
        self._lease = GpuLease(gpu.uuid, self._probe, self._quiet)
        self._device = CudaDevice(device.torch_gpu(), secret, self._buffers, self._lease, self._pause)
        self._last, self._stages = 0.0, {}
        self._machine: dict[str, Any] | None = None
        with self._lease.taken(sole=True):
            self._calibrate()
            if describes:
                self._describe()

    def prepare(self, task: Task) -> dict[str, Any]:
        """What the compile stage needs to know: the shapes that submissions will meet, and the modes.

        Raises:
            DrKernelError: the task is unusable.
        """
        prepared = self._prepared(task)
        return {
            "source": prepared.task.source,
            "hidden": [reference.constants for reference in prepared.hidden],
            "modes": [list(modes) for modes in prepared.mode_alternatives],
        }

    def _prepared(self, task: Task) -> CudaPreparedTask:
        if task in self._cache:
            return self._paper(task)
        for sole in (False, True):
            try:
                with self._lease.taken(sole):
                    if self._machine and time.monotonic() > self._described + _DESCRIBED_S:
                        with self._lease.alone(), self._quiet():
                            self._describe()
                    return self._paper(task)
            except GpuBusy:
                if sole:
                    raise
            torch.cuda.empty_cache()  # not before the error is gone, which keeps its frames' tensors
        raise AssertionError

    def judge(self, task: Task, source: str, kernels: Path, sole: bool) -> dict[str, Any]:
        """{"verdict": ...}, {"missing": ...} where the submission launches what has not been compiled, or
        {"doubt": ...} where a neighbour may have caused what was seen.

        Args:
            kernels: its compiled kernels; the folder is used up.
            sole: no other examination takes lease on the GPU meanwhile, so that nothing is doubtful.

        Raises:
            DrKernelError: the task is unusable.
            GpuUnhealthy: the GPU cannot be trusted with a measurement.
        """
        start = time.monotonic()
        memory = self._part * (_MEMORY if sole else _SHARED_MEMORY / self._sharing)
        self._prepared(task)
        runners = RunnerLease(self._pool, memory, multiplies(source))
        ready = time.monotonic()
        verdict, ending, doubt, lease = None, "", "", self._lease
        try:
            runners.adopt(kernels)
            with lease.taken(sole):
                began = time.monotonic()
                lease.resting = lambda: runners.process.stopped()
                try:
                    self._warm()
                    verdict = self._examined(task, source, runners)
                except PeerClosed:
                    pass
                finally:
                    ended = time.monotonic()
                    ending = runners.end()
                    self._last = ended
                self._settle(verdict)
        except Missing as error:
            return {"missing": error.kernels}
        except (GpuBusy, GpuUnhealthy) as error:
            if sole:
                raise
            doubt = f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(runners.folder, ignore_errors=True)
            shutil.rmtree(kernels, ignore_errors=True)
        if doubt:
            torch.cuda.empty_cache()
            return {"doubt": doubt}
        verdict = verdict or verdict_of_crash(ending)
        cost: dict[str, Any] = {"wait": ready - start + lease.waited, "exam": ended - began, "gpu": lease.held}
        cost = {key: round(1e3 * seconds, 2) for key, seconds in cost.items()}
        cost |= {key: round(ms, 2) for key, ms in self._stages.items()} | {"spans": [["exam", began, ended]]}
        verdict = dataclasses.replace(
            verdict, device=self.config.device, evidence=verdict.evidence | {"shared_gpu": self._share, "cost": cost}
        )
        return {"verdict": verdict.to_dict(), "machine": self._machine}

    def _settle(self, verdict: Verdict | None) -> None:
        """Raises GpuBusy, or GpuUnhealthy, where something else than the submission, which is dead, may be to blame."""
        if not verdict:
            return
        uneven = verdict.evidence.get("timing", {}).get("uneven")
        doubtful = verdict.reason in _DOUBTFUL[:2] or "out of memory" in verdict.detail
        if not self._lease.sole and (doubtful or uneven or verdict.evidence.get("together")):
            raise GpuBusy(verdict.reason)
        if verdict.reason in _DOUBTFUL:
            self._probe(self._lease.sole)

    def _examined(self, task: Task, source: str, runners: RunnerLease) -> Verdict:
        prepared = self._paper(task)
        seeds = Seeds(self.secret, static_check.digest(source), task.digest)
        refusal = deferred_refusal(self.config, source, task.answer_name)
        exam = Examination(self._device, prepared, self.config, seeds, runners.process, source, runners.change, refusal)
        try:
            verdict = with_room(self._lease.sole, exam.run)
        finally:
            self._stages = exam.stages
        return dataclasses.replace(verdict, evidence=verdict.evidence | {"training": exam.modes[0]})

    def _paper(self, task: Task) -> CudaPreparedTask:
        """The prepared task, from the cache where possible."""
        return self._cache.get(task, lambda: with_room(self._lease.sole, lambda: self._device.prepare(task)))

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        """No context comes into being on the GPU meanwhile, and none goes."""
        while self._pool.terminating:
            self._pool.terminating.pop().reaped(_BURIED_S)
        with self._pool.paused():
            yield

    def _pause(self) -> float:
        """Lets others be alone; while a runner of this process dies it works on, since they would wait for that too."""
        terminating = time.monotonic() < self._last + _BURIED_S and self._pool.burying
        return 0.0 if terminating else self._lease.pause()

    def _warm(self) -> None:
        """An idle GPU clocks down."""
        if time.monotonic() - self._last > _IDLE_S:
            torch.cuda._sleep(_WARM_CYCLES)

    def _probe(self, sole: bool) -> None:
        """Waits until a tiny kernel is as fast as on a free GPU.

        Raises:
            GpuBusy, or GpuUnhealthy where nobody else is there: it stays slow.
        """
        patience, wanted = (_PROBE_S, _STEADY) if sole else (_CROWDED_S, 1)
        deadline, looks = time.monotonic() + patience, 0
        try:
            torch.cuda.synchronize()
            while time.monotonic() < deadline:
                looks = looks + 1 if statistics.median(_tiny_us() for _ in range(_PROBES)) < _PROBE_US else 0
                if looks == wanted:
                    return
                time.sleep(0.002)
        except RuntimeError as error:
            raise GpuUnhealthy(f"the GPU fails: {error}") from error
        slow = f"a tiny kernel still takes more than {_PROBE_US:g} us after {patience:g} s"
        raise GpuUnhealthy(slow) if sole else GpuBusy(slow)

    def _describe(self) -> None:
        """What the GPU is, and how fast it is now; see baselines."""
        self._machine, self._described = baselines.today(), time.monotonic()

    def _calibrate(self) -> None:
        """Finds out what the trusted clock usually sees beyond a runner's events, with a submission of our own.

        Also compares and prepares once: then all that is imported or compiled lazily is there.
        """
        for columns in (64, 4096):
            table = torch.rand(256, columns, device="cuda")
            fused.statistics(table.double(), table, table.double())
            fused.deviations(table, table.double(), table[:, 0].double(), 0.0)
            fused.differences(table.view(-1), table.view(-1))
        interleaving.ratio_interval(numpy.ones(4), numpy.ones(4), 0)
        task = Task("calibration", _TRUSTED.replace("ModelNew", "Model"))
        prepared = self._paper(task)
        process, folder = self._pool.take(self._part * _MEMORY)
        try:
            with self._lease.alone(), self._quiet():
                self._buffers.overhead_us = self._overhead(process, prepared)
        finally:
            process.end()
            self._pool.terminating.append(process)
            shutil.rmtree(folder, ignore_errors=True)

    def _overhead(self, process: Process, prepared: CudaPreparedTask) -> float:
        """The lower quartile over blocks, in microseconds: what is more than usual came from elsewhere."""
        reference, size = prepared.reference, prepared.bytes_per_call
        client, mine = RunnerClient(process, _START_S), cases.build(reference, 0)
        client.load(_TRUSTED, "ModelNew")
        client.build(0, mine)
        tolerance = cases.expected_outputs(reference.task, mine, reference.inputs(0), False, 0, 1.0).tolerance()
        watch = PairedTimer(self._buffers, client, mine, False, reference.inputs, size, tolerance, waits=False)
        return statistics.quantiles(watch.excesses(8, 20), n=4)[0]


def _tiny_us() -> float:
    start = time.perf_counter()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - start)


_TRUSTED = """
import numpy
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(1024, 1024)]

def get_init_inputs():
    return []
"""
