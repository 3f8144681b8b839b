"""What a worker process of the judge runs: an examiner or a compile worker, with its zygote.

worker_process.py starts it from the process of the Judge.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import importlib
import os
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from drkernel.judge.boundary import aten, framing, sandbox, warm_up
from drkernel.judge.boundary.construction import seed_one_generator
from drkernel.judge.boundary.framing import PeerClosed, Unsendable
from drkernel.judge.boundary.sandbox import Limits
from drkernel.judge.boundary.zygote import Process, ProcessSpec, Zygote, ZygoteDied
from drkernel.judge.devices.simulated import compilation
from drkernel.judge.devices.simulated.device import SimulatedDevice
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.trusted import criterion, lift, prepare, static_check
from drkernel.judge.trusted.cases import Seeds
from drkernel.judge.trusted.criterion import Finding, KernelBenchTrials
from drkernel.judge.trusted.exam_config import ExamConfig, deferred_refusal
from drkernel.judge.trusted.examination import Examination
from drkernel.judge.trusted.verdicts import as_reply, marked, verdict_of_crash, without_evidence
from drkernel.types import DrKernelError, Task, Verdict

SIMULATED_RUNNER = ProcessSpec("drkernel.judge.untrusted.runner:prepare", "drkernel.judge.untrusted.runner:main")
V = TypeVar("V", Verdict, Verdict | None)
_MAX_PREPARED_TASKS, _KEPT_BYTES = 128, 2**28
"""Prepared tasks that a worker keeps, and bytes that their shared cases take."""
_WARM_UP = Task("warm-up", warm_up.TASK, small={"rows": 8, "cols": 32})
"""Prepared once before the first request, so that torch's lazy imports are done by then."""


class Examiner:
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

    def prepared(self, task: Task) -> prepare.PreparedTask:
        """The prepared task, from the cache where possible; DrKernelError where the task is unusable."""
        return self._prepared.get(
            task, lambda: prepare.expect_usable(self._device.prepare(task), self.config.degenerate)
        )

    def judge(self, task: Task, source: str) -> Verdict:
        start = time.perf_counter()
        verdict = self._refused(task, source) or unless_starved(lambda: self._examined(task, source))
        found = self._by_kernelbench(task, source) if self.config.criterion != "drkernel" else None
        if uncompiled := self._uncompiled(task, source, verdict, found):
            verdict, found = uncompiled, None
        verdict = criterion.decided(self.config.criterion, verdict, found)
        if self.config.degenerate == "mark":
            verdict = marked(verdict, self.prepared(task).degenerate)
        took, evidence = time.perf_counter() - start, verdict.evidence | {"precision": task.precision}
        return dataclasses.replace(verdict, device=self.config.device, seconds=took, evidence=evidence)

    def _refused(self, task: Task, source: str) -> Verdict | None:
        if not self.config.gate:
            return None
        found = static_check.inspect(source, task.answer_name, not self.config.price_hacks)
        return found.to_verdict() if found else None

    def _examined(self, task: Task, source: str) -> Verdict:
        prepared = self.prepared(task)
        seeds = Seeds(self.secret, static_check.digest(source), task.digest)
        process = self.zygote.start()
        verdict = refusal = deferred_refusal(self.config, source, task.answer_name)
        try:
            shrunk = lift.with_small_sizes(source, prepared.task)
            exam = Examination(
                self._device, prepared, self.config, seeds, process, shrunk, refusal=refusal, written=source
            )
            verdict = exam.run()
        except PeerClosed:
            pass
        finally:
            ending = ended(process, verdict)
        return verdict or verdict_of_crash(ending)

    def _uncompiled(self, task: Task, source: str, own: Verdict, found: Finding | None) -> Verdict | None:
        """The verdict on a submission whose kernels do not compile. Only who has a time otherwise is asked."""
        timed = own.speedup is not None or (found and found.verdict.ok)
        if not (timed and self.tracers):
            return None
        prepared = self.prepared(task)
        train = prepared.mode_alternatives[0][0]
        given = self.tracers.start, prepared.task, train, source, self.config.timeout_s
        return unless_starved(lambda: compilation.refusal(*given))

    def _by_kernelbench(self, task: Task, source: str) -> Finding:
        """What KernelBench's criterion says, found in a process of its own."""
        if found := criterion.refused(source, task.answer_name):
            return found
        prepared = self.prepared(task)
        seeds = Seeds(self.secret, "kernelbench", static_check.digest(source), task.digest)
        process, trials = self.zygote.start(), None
        try:
            shrunk = lift.with_small_sizes(source, prepared.task)
            trials = KernelBenchTrials(self._device, prepared, self.config, seeds, process, shrunk).run()
        finally:
            ended(process, trials)
        return trials


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


def main() -> None:
    """Serves one Judge over the socket whose number is the only argument, until it closes.

    The first request holds the settings, among them the `kind` of worker and how `nice` it is. The second holds the
    secret, which no zygote may know.
    """
    connection = socket.socket(fileno=int(sys.argv[1]))
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="torch")  # of references, at sizes that nobody asked for
    sandbox.die_with_parent()
    sandbox.hide_process()
    sequence, nonce, settings = framing.receive(connection)
    os.nice(settings.get("nice", 0))
    kinds = {"simulated": _simulated, "compiler": _compiler, "gpu": _gpu}
    try:
        missing, start = kinds[settings["kind"]](settings)
        framing.send(connection, sequence, nonce, {"missing": missing})
        sequence, nonce, body = framing.receive(connection)
        answer = start(bytes.fromhex(body["secret"]))
    except (PeerClosed, ZygoteDied):
        raise
    except Exception as error:  # the Judge says it in one line
        text = " ".join(f"{type(error).__name__}: {error}".split())
        framing.send(connection, sequence, nonce, {"broken": text[:500]})
        return
    faulthandler.register(signal.SIGUSR1)  # the zygote, which has started, has no such handler; see tell_where
    framing.send(connection, sequence, nonce, {})
    while True:
        sequence, nonce, body = framing.receive(connection)
        send_reply(connection, sequence, nonce, answer(body))


def send_reply(connection: socket.socket, sequence: int, nonce: bytes, reply: dict[str, Any]) -> None:
    """Sends a reply; of one that cannot be sent, what can be."""
    try:
        framing.send(connection, sequence, nonce, reply)
    except Unsendable as error:
        framing.send(connection, sequence, nonce, without_evidence(reply, str(error)))


Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""From the body of a request to the body of the reply."""
Start = Callable[[bytes], Answer]
"""What a worker does once it has the secret."""


def _simulated(settings: dict[str, Any]) -> tuple[list[str], Start]:
    """An examiner of the simulated device."""
    importlib.import_module("torch._dynamo")  # both need it for tensors without data; the zygote inherits it
    zygote = Zygote(Limits(**settings["limits"]), SIMULATED_RUNNER)
    tracers = Zygote(Limits(**settings["limits"]), compilation.PROCESS_SPEC) if settings.get("compiles", True) else None
    aten.install()
    seed_one_generator()
    SimulatedDevice(GPUS["H200"], b"").prepare(_WARM_UP)
    missing = zygote.wait_ready()
    if tracers:
        tracers.wait_ready()

    def start(secret: bytes) -> Answer:
        examiner = Examiner(zygote, ExamConfig(**settings["config"]), secret, tracers)

        def answer(body: dict[str, Any]) -> dict[str, Any]:
            task = Task(**body["task"])
            try:
                if body["source"] is None:
                    return {"degenerate": examiner.prepared(task).degenerate}
                return as_reply(examiner.judge(task, body["source"]))
            except DrKernelError as error:
                return {"error": str(error)}

        return answer

    return missing, start


def _compiler(settings: dict[str, Any]) -> tuple[list[str], Start]:
    """A compile worker; sees neither GPU nor secret."""
    from drkernel.judge.devices.cuda.compile_worker import CompileWorker

    compiler = CompileWorker(settings)
    return compiler.missing, lambda _: compiler.answer


def _gpu(settings: dict[str, Any]) -> tuple[list[str], Start]:
    """An examiner of the one GPU that it sees."""
    from drkernel.judge.boundary.cuda import setup
    from drkernel.judge.devices.cuda import examiner

    zygote = Zygote(Limits(**settings["limits"]), examiner.PROCESS_SPEC)
    missing = zygote.wait_ready()
    os.environ["TRITON_CACHE_DIR"] = str(Path(settings["scratch"]) / "examiner")
    setup.start(everywhere=False)

    def start(secret: bytes) -> Answer:
        scratch = Path(settings["scratch"])
        options = {key: settings[key] for key in ("ready_runners", "examiners_per_gpu", "colocated", "describes")}
        made = examiner.GpuExaminer(zygote, ExamConfig(**settings["config"]), secret, scratch, **options)

        def answer(body: dict[str, Any]) -> dict[str, Any]:
            task = Task(**body["task"])
            try:
                if body["source"] is None:
                    return {"plan": made.prepare(task)}
                return made.judge(task, body["source"], Path(body["kernels"]), body["exclusive"])
            except DrKernelError as error:
                return {"error": str(error)}
            except examiner.GpuUnhealthy as error:
                stands = as_reply(error.verdict) if error.verdict else {}
                return {"unhealthy": str(error)} | stands

        return answer

    return missing, start


if __name__ == "__main__":
    try:
        main()
    except (PeerClosed, ZygoteDied):
        sys.exit(0)
