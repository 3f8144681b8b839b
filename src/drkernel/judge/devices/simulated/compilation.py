"""Whether the kernels of a submission compile for the GPU that is modelled: Triton itself is asked.

Triton's interpreter takes more than its compiler does. So a tracer, as on a GPU (cuda/precompile.py), runs the
submission at the published sizes on tensors without data, and compiles what is launched until its shared memory is
known. What ends a trace for another reason says nothing of a kernel. Where a submission catches what its kernels raise
and none of them can be launched, its outputs are not theirs on a GPU, whatever it does or raises then.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from drkernel.judge.boundary.parsing import parse
from drkernel.judge.devices.cuda.precompile import MIN_TIMEOUT_S, Call, TracerReply, failed, outcome
from drkernel.judge.devices.simulated.grids import given
from drkernel.judge.trusted.runner_client import Failed
from drkernel.judge.trusted.verdicts import verdict_of_failure
from drkernel.judge.trusted.zygote import Process, ProcessSpec
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task, Verdict

_TRACER = "drkernel.judge.untrusted.cuda.tracer"
PROCESS_SPEC = ProcessSpec(f"{_TRACER}:prepare_front_end", f"{_TRACER}:main")


def refusal(start: Callable[[], Process], task: Task, train: bool, source: str, timeout_s: float) -> Verdict | None:
    """The verdict on a submission with a kernel that does not compile; None for others.

    Args:
        start: starts a tracer.
        task: with its published sizes.
        train: the mode of the forward that is looked at.
        timeout_s: of the judge; it takes 20 s at least, as on a GPU.
    """
    call = _call(task.id, task.source, task.entry_point, train)
    if call is None:
        return None
    process, timeout_s = start(), max(MIN_TIMEOUT_S, timeout_s)
    found = outcome(process, timeout_s, lambda: _failures(process, call, source, task.submission_name, timeout_s))
    return found if isinstance(found, Verdict) else verdict_of_failure(found[0], source) if found else None


@functools.lru_cache(maxsize=64)
def _call(task_id: str, source: str, entry_point: str, train: bool) -> Call | None:
    """The call at the published sizes; None where it cannot be described without data."""
    try:
        return Call.of(*given(Reference(Task(task_id, source, entry_point))), train)
    except DrKernelError:
        return None


def _failures(process: Process, call: Call, source: str, name: str, timeout_s: float) -> list[Failed]:
    """Why the submission does not run: the compiler's reasons, or what ended the trace on a GPU, too."""
    deadline = time.monotonic() + timeout_s
    questions: list[dict[str, Any]] = [{"do": "load", "source": source, "name": name, "known": []}]
    for question in [*questions, {"do": "trace", **vars(call)}]:
        reply = parse(process.request(question, deadline), TracerReply)
        if reply.error and reply.definite:
            return [failed(reply.error)]
        if reply.error:
            break
    caught = [] if reply.launched else reply.failures
    return [failed(failure.error) for failure in caught]
