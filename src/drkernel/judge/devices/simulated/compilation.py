"""Whether the kernels of a submission compile for the GPU that is modelled: Triton itself is asked.

Triton's interpreter takes more than its compiler does. So a tracer, as on a GPU (cuda/precompile.py), runs the
submission at the published sizes on tensors without data, and compiles what is launched until its shared memory is
known. What ends a trace for another reason says nothing of a kernel. If it needs data, they are guessed in several
ways: what compiles in none of them does not compile. Where a submission catches what its kernels raise
and none of them can be launched, its outputs are not theirs on a GPU, whatever it does or raises then.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any

from drkernel.judge.boundary.framing import DeadlineExceeded, PeerClosed, ProtocolViolation
from drkernel.judge.boundary.parsing import parse
from drkernel.judge.devices.cuda.precompile import MIN_TIMEOUT_S, Call, TracerReply, failed, outcome
from drkernel.judge.devices.simulated.dry_runs import given
from drkernel.judge.trusted.processes.failures import Failed
from drkernel.judge.trusted.processes.zygote import Process, ProcessSpec
from drkernel.judge.trusted.verdicts import verdict_of_failure
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task, Verdict

_GUESSES, _GUESSING_S = (0, 1, 16, 64), 8.0
"""What numbers are that host code reads: each may become the size of a block. For how long they are tried."""
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
    tracing: dict[str, Any] = {"do": "trace", **vars(call)}
    for question in ({"do": "load", "source": source, "name": name, "known": []}, tracing):
        reply = parse(process.request(question, deadline), TracerReply)
        if reply.error and reply.definite:
            return [failed(reply.error)]
        if reply.error:
            break
    caught = [] if reply.launched else [failed(failure.error) for failure in reply.failures]
    return caught or (
        _whatever_is_read(process, tracing, reply.launched) if reply.error and question is tracing else []
    )


def _whatever_is_read(process: Process, tracing: dict[str, Any], launched: int) -> list[Failed]:
    """Why the submission does not run, whatever numbers its host code reads; nothing where it may. A trace that
    launches nothing says nothing.

    Args:
        launched: launches so far.
    """
    reasons: list[Failed] = []
    with contextlib.suppress(DeadlineExceeded, PeerClosed, ProtocolViolation):
        deadline = time.monotonic() + _GUESSING_S
        for number in _GUESSES:
            reply = parse(process.request({**tracing, "guess": number}, deadline), TracerReply)
            if not reply.error and reply.launched > launched:
                return []
            launched = reply.launched
            if reply.error and reply.definite:  # another error says that the guess was wrong
                reasons.append(failed(reply.error))
        return reasons[-1:]
    return []
