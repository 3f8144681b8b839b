"""What a compile worker runs, a trusted worker process without a GPU: static checks of a submission, then the
compilation of its kernels.
"""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import torch

from drkernel.judge.boundary.sandbox import Limits
from drkernel.judge.devices.cuda import precompile
from drkernel.judge.devices.cuda.precompile import Call
from drkernel.judge.trusted import criterion
from drkernel.judge.trusted.criterion import Finding
from drkernel.judge.trusted.processes.zygote import ProcessSpec, Zygote
from drkernel.judge.trusted.source import static_check
from drkernel.judge.trusted.verdicts import as_reply, verdict_of_failure
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task, Verdict

_TRACER = "drkernel.judge.untrusted.cuda.tracer"
PROCESS_SPEC = ProcessSpec(f"{_TRACER}:prepare", f"{_TRACER}:main")


class CompileWorker:
    """Compiles one submission at a time; untrusted code runs in one-shot processes without a GPU.

    Args:
        settings: `config` and `limits` of the judge; `scratch`, the folder for what all submissions share.
    """

    def __init__(self, settings: dict[str, Any]):
        self._config = settings["config"]
        self._zygote = Zygote(Limits(**settings["limits"]), PROCESS_SPEC)
        self.missing = self._zygote.wait_ready()
        self._shared = Path(settings["scratch"]) / "launchers"
        self._shared.mkdir(exist_ok=True)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """{"kernels": number, "folder": path}, or {"verdict": ...} on a submission that needs no GPU to be refused."""
        task, source = Task(**body["task"]), body["source"]
        if early := self._refused(task, source):
            return early
        config = self._config
        folder = Path(body["folder"])
        calls = _calls(task.id, body["plan"]["source"], task.entry_point, _frozen(body["plan"]))
        timeout_s = max(precompile.MIN_TIMEOUT_S, config["timeout_s"])
        process = self._zygote.start()
        given = process, source, task.submission_name, calls, body["missing"], folder, self._shared, timeout_s
        compiled = precompile.outcome(process, timeout_s, lambda: precompile.precompile(*given))
        refused = _refusal(compiled, source)
        if isinstance(compiled, precompile.Compiled) and refused is None:
            return {"kernels": compiled.kernels, "folder": str(folder)}
        shutil.rmtree(folder, ignore_errors=True)
        assert refused
        return self._ended(refused)

    def _refused(self, task: Task, source: str) -> dict[str, Any] | None:
        """The reply to what the static check refuses, unless KernelBench's criterion wants it to run all the same."""
        config = self._config
        name = task.submission_name
        found = static_check.inspect(source, name, not config["price_hacks"]) if config["gate"] else None
        if config["criterion"] == "drkernel":
            return as_reply(found.to_verdict()) if found else None
        kernelbench = criterion.refused(source, name)
        return self._ended(found.to_verdict(), kernelbench) if found and kernelbench else None

    def _ended(self, own: Verdict, kernelbench: Finding | None = None) -> dict[str, Any]:
        return as_reply(criterion.decided(self._config["criterion"], own, kernelbench))


def _refusal(compiled: precompile.Compiled | Verdict, source: str) -> Verdict | None:
    """The verdict on a failure at the published shape. At a hidden shape, the examination decides what it means."""
    if isinstance(compiled, Verdict):
        return compiled
    if compiled.failure is None or compiled.call:
        return None
    return verdict_of_failure(compiled.failure, source)


def _frozen(plan: dict[str, Any]) -> tuple:
    return tuple(tuple(sorted(constants.items())) for constants in plan["hidden"]), plan["modes"][0][0]


@functools.lru_cache(maxsize=64)
def _calls(task_id: str, source: str, entry_point: str, plan: tuple) -> list[Call]:
    """The calls that submissions will get: at the published shape, then at the hidden ones.

    Where a task's inputs cannot be described without data, that call is left out, and its kernels are found on the GPU.
    """
    hidden, train = plan
    calls = []
    for constants in ({}, *map(dict, hidden)):
        try:
            reference = Reference(Task(task_id, source, entry_point), constants)
            with torch.device("meta"):
                calls.append(Call.of(list(reference.init_args()), reference.inputs(0), train))
        except DrKernelError:
            continue
    return calls
