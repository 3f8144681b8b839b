"""The trusted process that owns one GPU: it lets one submission at a time onto it, and buries each before the next."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import statistics
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch

from drkernel.judge import admission, cases
from drkernel.judge.candidate import Candidate, Missing
from drkernel.judge.cases import Seeds
from drkernel.judge.cuda import baselines, clock, exam, fused, precompile, runner, setup
from drkernel.judge.cuda.clock import Clock
from drkernel.judge.cuda.desk import Desk
from drkernel.judge.cuda.exam import GpuExam, GpuPaper
from drkernel.judge.exam import Terms, crashed
from drkernel.judge.protocol import Gone, Late, ProtocolViolation
from drkernel.judge.zygote import Process, Trade, Zygote
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task, Verdict

TRADE = Trade(runner.prepare, runner.main, areas=0, gpu=True)
_PAPERS, _START_S, _MAP_S = 64, 60.0, 10.0
_MEMORY = 0.6
"""Share of the GPU's memory that a runner may allocate."""
_IDLE_S, _WARM_CYCLES = 0.5, 20_000_000
_DESCRIBED_S = 600.0
"""How long the description of the GPU's speed holds."""
_PROBE_US, _PROBE_S = 400.0, 30.0
"""A tiny kernel takes about 15 us on a free GPU, and a time slice of 2 ms beside another process that computes."""


class Unwell(Exception):
    """The GPU does not pass its probe; the process gives up, and is started anew when the GPU has recovered."""


class Pool:
    """Runners that are started ahead of time, because a CUDA context takes a quarter of a second."""

    def __init__(self, zygote: Zygote, scratch: Path, size: int):
        self._zygote, self._scratch, self._size = zygote, scratch, size
        self._ready: deque[tuple[Process, Path]] = deque()
        self._wanted, self._changed = threading.Semaphore(size), threading.Condition()
        self._shared = scratch / "shared"
        precompile.warm_shared(self._shared)
        self._error: BaseException | None = None
        threading.Thread(target=self._fill, daemon=True).start()

    def _fill(self) -> None:
        number = 0
        try:
            while self._wanted.acquire():
                folder = self._scratch / f"runner-{os.getpid()}-{number}"
                number += 1
                shutil.copytree(self._shared, folder, copy_function=os.link)
                process = self._zygote.start({runner.KERNELS: str(folder)})
                process.post({"do": "ready"}, time.monotonic() + _START_S)
                with self._changed:
                    self._ready.append((process, folder))
                    self._changed.notify()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify()

    def take(self) -> tuple[Process, Path]:
        """A runner that has its context, and the folder that it will look for compiled kernels in."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._error)
            if self._error:
                raise self._error
            process, folder = self._ready.popleft()
        self._wanted.release()
        if error := process.collect(time.monotonic() + _START_S).get("error"):
            raise Unwell(f"no runner starts: {error}")
        return process, folder


class GpuExaminer:
    """Judges submissions one at a time. Trusted: holds the secret, the references, the expected answers and the clock.

    Args:
        scratch: a private folder; compiled kernels come in beneath it.
        spare: runners that are kept ready.
        area_mb: device memory for one block of calls' inputs, and for its outputs.
        describes: answers say what the GPU is and how fast it is now, which baselines need.
    """

    def __init__(
        self, zygote: Zygote, terms: Terms, secret: bytes, scratch: Path, spare: int, area_mb: int, describes: bool
    ):
        self.secret = secret
        self.terms = dataclasses.replace(terms, device=f"cuda:{torch.cuda.get_device_name()}")
        self._papers: OrderedDict[str, GpuPaper | DrKernelError] = OrderedDict()
        self._pool = Pool(zygote, scratch, spare)
        self._desk = Desk(area_mb * 2**20)
        self._gpu = exam.torch_gpu()
        uuid = torch.cuda.get_device_properties(0).uuid
        self._lock = open(setup.lock_path(uuid), "a")  # noqa: SIM115
        self._last, self._stages = 0.0, {}
        self._machine: dict[str, Any] | None = None
        with self._slot():
            self._calibrate()
            if describes:
                self._describe()

    def prepare(self, task: Task) -> dict[str, Any]:
        """What the compile stage needs to know: the shapes that submissions will meet, and the modes.

        Raises:
            DrKernelError: the task is unusable.
        """
        with self._slot():
            paper = self._paper(task).paper
            if self._machine and time.monotonic() > self._described + _DESCRIBED_S:
                self._describe()
        return {
            "source": paper.task.source,
            "hidden": [reference.constants for reference in paper.hidden],
            "modes": [list(modes) for modes in paper.modes],
        }

    def judge(self, task: Task, source: str, kernels: Path) -> dict[str, Any]:
        """{"verdict": ...}, or {"missing": ...} where the submission launches what has not been compiled.

        Args:
            kernels: its compiled kernels; the folder is used up.

        Raises:
            DrKernelError: the task is unusable.
            Unwell: the GPU cannot be trusted with a measurement.
        """
        start = time.monotonic()
        process, folder = self._pool.take()
        ready = time.monotonic()
        verdict, missing = None, None
        try:
            _adopt(kernels, folder)
            with self._slot():
                began = time.monotonic()
                try:
                    verdict = self._examined(task, source, process)
                except Missing as error:
                    missing = error.kernels
                except Gone:
                    pass
                finally:
                    ended = time.monotonic()
                    ending = process.end()
                if verdict and verdict.reason == "background_work":
                    self._probe()  # if the GPU stays busy, it was not the submission
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(kernels, ignore_errors=True)
        if missing is not None:
            return {"missing": missing}
        verdict = verdict or crashed(ending)
        cost: dict[str, Any] = {"wait": 1e3 * (ready - start), "gpu": 1e3 * (ended - began), **self._stages}
        cost = {key: round(ms, 2) for key, ms in cost.items()}
        evidence = verdict.evidence | {"cost": cost | {"spans": [["gpu", began, ended]]}}
        verdict = dataclasses.replace(verdict, device=self.terms.device, evidence=evidence)
        return {"verdict": verdict.to_dict(), "machine": self._machine}

    def _examined(self, task: Task, source: str, process: Process) -> Verdict:
        paper = self._paper(task)
        self._map(process)
        seeds = Seeds(self.secret, admission.digest(source), task.digest)
        sitting = GpuExam(paper, self.terms, seeds, process, source, self._desk)
        try:
            verdict = sitting.run()
        finally:
            self._stages = sitting.stages
        return dataclasses.replace(verdict, evidence=verdict.evidence | {"training": sitting.modes[0]})

    def _paper(self, task: Task) -> GpuPaper:
        """The prepared task, from the cache where possible."""
        if task.digest not in self._papers:
            try:
                self._papers[task.digest] = exam.write(task, self.secret, self._gpu, self._desk)
            except DrKernelError as error:
                self._papers[task.digest] = error
            if len(self._papers) > _PAPERS:
                self._papers.popitem(last=False)
        self._papers.move_to_end(task.digest)
        found = self._papers[task.digest]
        if isinstance(found, DrKernelError):
            raise found
        return found

    @contextlib.contextmanager
    def _slot(self) -> Iterator[None]:
        """The GPU for oneself: no other judge of this machine uses it, and what was there before is gone."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            if time.monotonic() - self._last > _IDLE_S:
                torch.cuda._sleep(_WARM_CYCLES)  # an idle GPU clocks down
            self._probe()
            yield
        finally:
            self._last = time.monotonic()
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _probe(self) -> None:
        """Waits until a tiny kernel is as fast as on a free GPU."""
        deadline = time.monotonic() + _PROBE_S
        try:
            torch.cuda.synchronize()
            while time.monotonic() < deadline:
                if statistics.median(_tiny_us() for _ in range(5)) < _PROBE_US:
                    return
                time.sleep(0.002)
        except RuntimeError as error:
            raise Unwell(f"the GPU fails: {error}") from error
        raise Unwell(f"a tiny kernel still takes more than {_PROBE_US:g} us after {_PROBE_S:g} s")

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
        clock.interval(numpy.ones(4), numpy.ones(4), 0)
        task = Task("calibration", _TRUSTED.replace("ModelNew", "Model"))
        reference = self._paper(task).paper.reference
        process, folder = self._pool.take()
        try:
            self._desk.overhead_us = self._overhead(process, reference)
        finally:
            process.end()
            shutil.rmtree(folder, ignore_errors=True)

    def _map(self, process: Process) -> None:
        """Lets a runner reach the memory that it shares with the examiner."""
        process.areas = [self._desk.shared_in, self._desk.shared_out]
        inputs, outputs = ([area.share().hex(), area.size] for area in process.areas)
        question = {"do": "map", "memory": _MEMORY, "inputs": inputs, "outputs": outputs}
        try:
            error = process.ask(question, time.monotonic() + _MAP_S).get("error")
        except (Gone, Late, ProtocolViolation) as lost:  # no submission has run in it yet
            raise Unwell(f"a runner was lost before its first question: {lost!r}") from lost
        if error:
            raise Unwell(f"a runner cannot map device memory: {error}")

    def _overhead(self, process: Process, reference: Reference) -> float:
        """The lower quartile over blocks, in microseconds: what is more than usual came from elsewhere."""
        self._map(process)
        candidate, mine = Candidate(process, _START_S), cases.side(reference, 0, perturb=False)
        candidate.load(_TRUSTED, "ModelNew")
        candidate.build(0, mine)
        tolerance = cases.answer(reference.task, mine, reference.inputs(0), False, 0, 1.0).tolerance()
        watch = Clock(self._desk, candidate, mine, False, reference.inputs, tolerance, waits=False)
        return statistics.quantiles(watch.excesses(8, 20), n=4)[0]


def _adopt(kernels: Path, folder: Path) -> None:
    """Moves compiled kernels to where a runner looks for them; Triton's index of each names the place."""
    for entry in kernels.iterdir():
        home = folder / entry.name
        if home.exists():
            continue
        entry.rename(home)
        for index in home.glob("__grp__*.json"):
            names = json.loads(index.read_text())["child_paths"]
            index.write_text(json.dumps({"child_paths": {name: str(home / name) for name in names}}))


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
