"""The examiner of the simulated device: a trusted worker process that examines submissions, one after the other."""

from __future__ import annotations

import dataclasses
import importlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

from drkernel.judge.boundary import aten, sandbox, warm_up
from drkernel.judge.boundary.construction import seed_one_generator
from drkernel.judge.boundary.framing import PeerClosed
from drkernel.judge.boundary.sandbox import Limits
from drkernel.judge.devices.simulated import compilation
from drkernel.judge.devices.simulated.device import SimulatedDevice
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.trusted import prepare
from drkernel.judge.trusted.criterion import Finding
from drkernel.judge.trusted.exam_config import ExamConfig
from drkernel.judge.trusted.judging import Judging
from drkernel.judge.trusted.processes.zygote import Process, ProcessSpec, Zygote, ZygoteDied
from drkernel.judge.trusted.sizes import lift
from drkernel.judge.trusted.verdicts import as_reply, verdict_of_crash
from drkernel.types import DrKernelError, Task, Verdict

PROCESS_SPEC = ProcessSpec("drkernel.judge.untrusted.runner:prepare", "drkernel.judge.untrusted.runner:main")
V = TypeVar("V", Verdict, Verdict | None)
_MAX_PREPARED_TASKS, _KEPT_BYTES = 128, 2**28
"""Prepared tasks that a worker keeps, and bytes that their shared cases take."""
_WARM_UP = Task("warm-up", warm_up.TASK, small={"rows": 8, "cols": 32})
"""Prepared once before the first request, so that torch's lazy imports are done by then."""


class SimulatedExaminer:
    """Judges submissions one at a time. Trusted: holds the secret, the references and the expected outputs.

    Args:
        zygote: starts runners.
        tracers: starts tracers; None where somebody else finds out whether kernels compile.
    """

    def __init__(self, zygote: Zygote, config: ExamConfig, secret: bytes, tracers: Zygote | None = None):
        self.zygote, self.tracers, self.config, self.secret = zygote, tracers, config, secret
        gpu = GPUS[config.device.partition(":")[2]]
        self._device = SimulatedDevice(gpu, secret, config.timed_shapes, zygote.start)
        self._prepared = prepare.PreparedTaskCache[prepare.PreparedTask](_MAX_PREPARED_TASKS, _KEPT_BYTES)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request: {"verdict": ...}, {"degenerate": ...} where it has no source, or {"error": ...} where
        the task is unusable."""
        task = Task(**body["task"])
        try:
            if body["source"] is None:
                return {"degenerate": self.prepared(task).degenerate}
            return as_reply(self.judge(task, body["source"]))
        except DrKernelError as error:
            return {"error": str(error)}

    def prepared(self, task: Task) -> prepare.PreparedTask:
        """The prepared task, from the cache where possible; DrKernelError where the task is unusable."""
        return self._prepared.get(
            task, lambda: prepare.expect_usable(self._device.prepare(task), self.config.degenerate)
        )

    def judge(self, task: Task, source: str) -> Verdict:
        start = time.perf_counter()
        judging = Judging(self.config, self.secret, task, source)
        examine = lambda: unless_starved(lambda: self._examined(judging))
        own, found = judging.ask(examine, lambda: self._tried(judging))
        assert own, "a runner that ended is a crash"
        if uncompiled := self._uncompiled(task, source, own, found):
            own, found = uncompiled, None
        evidence: dict[str, Any] = {"precision": task.precision}
        if self.config.degenerate == "mark" and (degenerate := self.prepared(task).degenerate):
            evidence = {"degenerate": degenerate} | evidence
        verdict = judging.decided(own, found, evidence)
        return dataclasses.replace(verdict, seconds=time.perf_counter() - start)

    def _examined(self, judging: Judging) -> Verdict:
        prepared = self.prepared(judging.task)
        process = self.zygote.start()
        verdict = judging.deferred_refusal
        try:
            shrunk = lift.with_small_sizes(judging.source, prepared.task)
            verdict = judging.examination(self._device, prepared, process, shrunk).run()
        except PeerClosed:
            pass
        finally:
            ending = ended(process, verdict)
        return verdict or verdict_of_crash(ending)

    def _tried(self, judging: Judging) -> Finding:
        """What KernelBench's criterion says, found in a process of its own."""
        prepared = self.prepared(judging.task)
        process, found = self.zygote.start(), None
        try:
            shrunk = lift.with_small_sizes(judging.source, prepared.task)
            found = judging.trials(self._device, prepared, process, shrunk).run()
        finally:
            ended(process, found)
        return found

    def _uncompiled(self, task: Task, source: str, own: Verdict, found: Finding | None) -> Verdict | None:
        """The verdict on a submission whose kernels do not compile. Only who has a time otherwise is asked."""
        timed = own.speedup is not None or (found and found.verdict.ok)
        if not (timed and self.tracers):
            return None
        prepared = self.prepared(task)
        train = prepared.mode_alternatives[0][0]
        given = self.tracers.start, prepared.task, train, source, self.config.timeout_s
        return unless_starved(lambda: compilation.refusal(*given))


def unless_starved(find: Callable[[], V]) -> V:
    """The verdict that is found, if any. Where a process was killed for memory, a neighbour may have taken that.
    It will not do so again."""
    before = sandbox.oom_kills()
    verdict = find()
    return find() if verdict and verdict.evidence.get("killed") and sandbox.oom_kills() > before else verdict


def ended(process: Process, verdict: Verdict | Finding | None) -> str:
    """How a runner ended, see Process.end. A verdict that is reached stands, though the zygote died since."""
    try:
        return process.end()
    except ZygoteDied:
        if verdict is None:
            raise
        return ""


def set_up(settings: dict[str, Any]) -> tuple[list[str], Callable[[bytes], SimulatedExaminer]]:
    """Starts the zygotes, and warms the process up. Returns the sandbox locks that this machine lacks, and what makes
    the examiner once the secret is known, which no zygote may know."""
    importlib.import_module("torch._dynamo")  # both need it for tensors without data; the zygote inherits it
    zygote = Zygote(Limits(**settings["limits"]), PROCESS_SPEC)
    tracers = Zygote(Limits(**settings["limits"]), compilation.PROCESS_SPEC) if settings.get("compiles", True) else None
    aten.install()
    seed_one_generator()
    SimulatedDevice(GPUS["H200"], b"").prepare(_WARM_UP)
    missing = zygote.wait_ready()
    if tracers:
        tracers.wait_ready()
    return missing, lambda secret: SimulatedExaminer(zygote, ExamConfig(**settings["config"]), secret, tracers)
