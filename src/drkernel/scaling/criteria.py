"""Studies whose verdicts carry two criteria, this judge's and KernelBench's: the same records by each, and what lies
between. See drkernel/judge/README.md, "KernelBench's criterion".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drkernel.scaling.records import Record
from drkernel.types import Status, Verdict

NAMES = {"drkernel": "this judge", "kernelbench": "KernelBench"}
_DETAIL = 120
"""Characters of a detail that are shown."""


@dataclass(frozen=True)
class Between:
    """Turns of one task that the criteria disagree on, for the same reasons."""

    task: str
    text: str
    """What each criterion says, and why."""
    times: int
    speedup: float | None
    """The largest by the criterion that finds it right."""


def carried(records: Iterable[Record]) -> bool:
    """Whether verdicts carry both criteria."""
    return any("kernelbench" in record.verdict.evidence for record in records)


def decides(records: Iterable[Record]) -> bool:
    """Whether KernelBench's criterion decides the status of any verdict."""
    return any("criterion" in record.verdict.evidence for record in records)


def by(criterion: str, records: Iterable[Record]) -> list[Record]:
    """The records as a criterion (of NAMES) sees them. A verdict that does not carry both is the same for both."""
    see = {"drkernel": _own, "kernelbench": _theirs}[criterion]
    return [dataclasses.replace(record, verdict=see(record.verdict)) for record in records]


def between(records: Sequence[Record]) -> list[Between]:
    """What the criteria disagree on, by task; turns with the same reasons once."""
    found: dict[tuple[str, str], list[float]] = {}
    for record in sorted(records, key=lambda record: record.key):
        own, theirs = _own(record.verdict), _theirs(record.verdict)
        if own.ok == theirs.ok:
            continue
        speedup = (own if own.ok else theirs).speedup or 0.0
        found.setdefault((record.task, _reasons(own, theirs)), []).append(speedup)
    return [Between(task, text, len(each), max(each) or None) for (task, text), each in found.items()]


def _reasons(own: Verdict, theirs: Verdict) -> str:
    said = f"{own.status} {own.reason}" + (f" ({own.detail[:_DETAIL]})" if own.detail and not own.ok else "")
    why = theirs.detail[:_DETAIL]
    right = f"right, but has no time ({why})" if why else "right"
    return f"{NAMES['drkernel']}: {said}; {NAMES['kernelbench']}: {right if theirs.ok else why}"


def _own(verdict: Verdict) -> Verdict:
    """What this judge says."""
    said = verdict.evidence.get("drkernel")
    return Verdict(**said, device=verdict.device) if said else verdict


def _theirs(verdict: Verdict) -> Verdict:
    """What KernelBench's criterion says: `ok` where it finds the submission right, with its speed-up if it has one."""
    said = verdict.evidence.get("kernelbench")
    if not said:
        return verdict
    status: Status = "ok" if said["correct"] else "incorrect"
    reason = "right" if said["correct"] else said["why"].partition(":")[0]
    over = {"speedup_over": said["speedup_over"]} if "speedup_over" in said else {}
    return Verdict(status, reason, said["why"], speedup=said["speedup"], device=verdict.device, evidence=over)
