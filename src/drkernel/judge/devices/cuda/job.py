"""A submission on its way through the queues of the GPU judge. Runs in the process of the Judge."""

from __future__ import annotations

import json
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drkernel.judge.boundary.framing import MAX_BODY
from drkernel.types import Task

_MAX_MISSING = MAX_BODY // 4
"""Characters that describe the kernels which were not compiled: a request holds them beside a source."""


@dataclass
class Job:
    """One submission on its way to a verdict; without a source, one task that is to be prepared."""

    task: Task
    source: str | None
    future: Future
    plan: Future
    """What a compile worker needs to know of the task, once it is prepared."""
    began: float = field(default_factory=time.monotonic)
    missing: list[dict[str, Any]] = field(default_factory=list)
    """Kernels that examinations have met and that were not compiled."""
    rounds: int = 0
    """How often kernels were missing."""
    attempts: int = 0
    """How often an examiner died over it."""
    gpu_failed: bool = False
    """Whether the last examiner gave up because of its GPU."""
    exclusive: bool = False
    """Whether no other examination may be on the GPU meanwhile."""
    again: str = ""
    """Why it had to be examined again so."""
    folder: Path | None = None
    compile_s: float = 0.0
    spans: list = field(default_factory=list)
    """[stage, start, end] of what was done for it."""
    examiner: str = ""
    """Which examiner had it last, and on which GPU."""

    def may_lack(self, more: list[dict[str, Any]], rounds: int) -> bool:
        """Whether these kernels can be compiled, too: not for the `rounds`-th time, and in one request with those
        before."""
        return self.rounds < rounds and len(json.dumps(self.missing + more)) <= _MAX_MISSING

    def note_cost(self, verdict: dict[str, Any]) -> None:
        """Adds to a verdict what it took: milliseconds of each stage, and when what was done, and where."""
        cost, plan = verdict["evidence"].setdefault("cost", {}), self.plan.result()
        worked = sum(end - start for _, start, end in self.spans)
        verdict["seconds"] = max(0.0, worked - cost.get("wait", 0.0) / 1e3)
        prepared = plan.get("spans", [])
        took = {"prepare": sum(end - start for _, start, end in prepared), "compile": self.compile_s}
        cost |= {stage: round(1e3 * seconds, 2) for stage, seconds in took.items()} | {"rounds": self.rounds}
        cost |= {"again": self.again} if self.again else {}
        cost |= {"prepare_stages": plan.get("stages", {}), "prepared_by": plan.get("examiner", "")}
        cost["examiner"] = self.examiner
        prepared = [["prepare", start, end] for _, start, end in prepared]
        cost["spans"] = [["queue", self.began, self.spans[0][1]], *prepared, *self.spans, *cost.get("spans", [])]
