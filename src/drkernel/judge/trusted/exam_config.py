"""What a judge decides by, the same for all examinations."""

from __future__ import annotations

import dataclasses

from drkernel.judge.trusted.source import static_check
from drkernel.types import Verdict


@dataclasses.dataclass(frozen=True)
class ExamConfig:
    """What a judge decides by; see Judge."""

    device: str = "simulated:H200"
    timeout_s: float = 20.0
    lazy_below: float = 1.05
    shapes: str = "reject"
    gate: bool = True
    price_hacks: bool = False
    criterion: str = "drkernel"
    degenerate: str = "refuse"
    memory_gib: float | None = None
    timed_shapes: int = 1
    across_shapes: str = "geometric"


def deferred_refusal(config: ExamConfig, source: str, submission_name: str) -> Verdict | None:
    """The refusal that a judge which prices hacks does not act upon: a source without a Triton kernel."""
    found = static_check.inspect(source, submission_name) if config.gate and config.price_hacks else None
    return found.to_verdict() if found else None
