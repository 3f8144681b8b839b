"""How an examination ends, early or with a time, and how failures of a submission become verdicts."""

from __future__ import annotations

import dataclasses
from typing import Any

from drkernel.judge.trusted.processes.failures import Failed
from drkernel.types import Status, Verdict

_REASONS = {
    "SyntaxError": "syntax_error",
    "IndentationError": "syntax_error",
    "ModuleNotFoundError": "import_error",
    "ImportError": "import_error",
    "WorkBudgetExceeded": "timeout",
    "MemoryFault": "out_of_bounds",
    "MemoryError": "out_of_memory",
    "OutOfMemoryError": "out_of_memory",
    "SystemExit": "crashed",
}

PROFILE_ROWS = 16
"""Kernels that a verdict's profile names."""
_MAX_TEXT, _MAX_TEXTS, _MAX_ITEMS = 800, 64, 4096
"""Characters of any text in a verdict; entries of its lists of texts, and of others."""


class VerdictReached(Exception):
    """The verdict is reached: no further question is asked."""

    def __init__(self, status: Status, reason: str, detail: str, **evidence: Any):
        super().__init__(detail)
        self.verdict = Verdict(status, reason, detail, evidence=evidence)


def reason_of(speedup: float, lazy: bool) -> str:
    """The reason of a verdict on a right submission with a time."""
    return "faster" if not lazy else "slower" if speedup < 1 else "lazy"


def judge_failure(reason: str, detail: str, device: str = "") -> Verdict:
    """What is returned instead of a verdict where the judge itself fails, after it has tried again. The reasons are
    `worker_lost`, `gpu_lost` and `not_prepared`.

    No failure that a submission can bring about may end here, or it could choose not to be judged: what it does to its
    own process, what it sends and how long it takes are its own. See judge/PROPERTIES.md, P12.
    """
    return Verdict("judge_failure", reason, detail[:800], device=device)


def as_reply(verdict: Verdict) -> dict[str, Any]:
    """The verdict as a worker sends it. Texts and lists are bounded here, whoever they come from: what a submission
    says of itself (kernels by name, errors, a line of its source) could otherwise be more than a message may hold."""
    return {"verdict": _bounded(verdict.to_dict())}


def without_evidence(reply: dict[str, Any], problem: str) -> dict[str, Any]:
    """What a worker sends instead of a reply that cannot be sent: the verdict alone; what only a submission can have
    made too long is its fault, and of a task it is an error."""
    if "verdict" in reply:
        bare = {"evidence": {"unsendable": problem}, "profile": [], "reference_profile": []}
        return reply | {"verdict": reply["verdict"] | bare}
    if "missing" in reply:
        detail = f"it launches more kernels than can be described: {problem}"
        return as_reply(Verdict("invalid", "protocol_violation", detail))
    return {"error": f"judge: a reply that cannot be sent: {problem}"}


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_MAX_TEXT]
    if isinstance(value, dict):
        return {key: _bounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        texts = any(isinstance(item, str) for item in value)
        return [_bounded(item) for item in value[: _MAX_TEXTS if texts else _MAX_ITEMS]]
    return value


def verdict_of_crash(how: str) -> Verdict:
    """The verdict on a submission whose process ended before it answered; `how` as Process.end() puts it."""
    if how in ("signal SIGXCPU", "signal SIGKILL"):
        detail = "the process used up its processor time or memory"
        return Verdict("invalid", "timeout", detail, evidence={"killed": True})
    return Verdict("invalid", "crashed", f"the process ended without an answer ({how or 'connection closed'})")


def verdict_of_failure(failure: Failed, source: str) -> Verdict:
    """The verdict on a submission that raised an error; the detail names the line of its source."""
    lines = source.splitlines()
    code = lines[failure.line - 1].strip()[:160] if failure.line and failure.line <= len(lines) else ""
    place = f"line {failure.line}: `{code}`: " if code and not failure.message.startswith("kernel `") else ""
    reason = _REASONS.get(failure.kind, "runtime_error")
    detail = f"{place}{failure.kind}: {' '.join(failure.message.split())}"
    evidence = {"error": failure.kind, "line": failure.line}
    return Verdict("invalid", reason, detail[:800], evidence=evidence)


def priced(refusal: Verdict, verdict: Verdict) -> Verdict:
    """The refusal, with the times of a submission that was examined to the end, where they can be true."""
    if verdict.status != "ok":
        return refusal
    return dataclasses.replace(
        verdict,
        status=refusal.status,
        reason=refusal.reason,
        detail=refusal.detail,
        lazy=False,
        evidence=verdict.evidence | refusal.evidence | {"priced_as": verdict.reason},
    )
