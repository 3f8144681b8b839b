"""The speed-ups of a submission at several shapes, and the one that its verdict states.

What counts at a shape is the speed-up that was measured there, with two exceptions. Both count as the reference's own
speed, or as the published shape's where that is less, and so does a user fare who calls the reference there:

- where the submission refuses the shape with a clear error: else it would pay to refuse what one is slow at;
- where its Triton kernels do none of the work (`own_work` is false), and it is faster than the reference: PyTorch is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.devices.base import Measurement
from drkernel.judge.trusted import attribution, timed_shapes
from drkernel.judge.trusted.prepare import PreparedTask
from drkernel.judge.trusted.processes.failures import reading
from drkernel.judge.trusted.verdicts import PROFILE_ROWS, reason_of
from drkernel.types import Verdict

ACROSS: dict[str, Callable[[Sequence[float]], float]] = {
    "geometric": lambda speedups: math.exp(sum(map(math.log, speedups)) / len(speedups)) if min(speedups) > 0 else 0.0,
    "worst": min,
}
"""How the speed-ups at several shapes become one."""


@dataclass(frozen=True)
class ShapeTime:
    """What was found at one shape."""

    sizes: Mapping[str, int]
    """The constants of the task that differ from the published ones."""
    inputs: list[list[int]] | None
    """The shapes of the inputs, where they are known."""
    measured: Measurement | None
    """None where the submission refuses the shape."""
    own_work: bool = True
    """Whether its Triton kernels do work of the reference there."""
    refused: str = ""
    """How it refuses."""
    doubt: str = ""
    """Why the time cannot be true, if it cannot."""

    @classmethod
    def of(cls, prepared: PreparedTask, measured: Measurement | None, refused: str = "") -> ShapeTime:
        """What was found at the shape of a prepared task."""
        sizes = prepared.sizes
        return cls(sizes, timed_shapes.input_shapes(prepared.task, sizes), measured, refused=refused)

    @classmethod
    def elsewhere(
        cls, prepared: PreparedTask, measured: Measurement, train: bool, trace: OpTrace, effect: bool
    ) -> ShapeTime:
        """What was measured at another shape.

        Args:
            trace: what the submission launches there.
            effect: whether its outputs depend on that.
        """
        cost = prepared.reference_costs[train]
        with reading("a trace"):
            found = attribution.attribute(cost, trace, measured.submission_profile)
            doubt = attribution.implausible(cost, measured.submission_us)
        own_work = effect and not found.nothing_replaced
        return dataclasses.replace(cls.of(prepared, measured), own_work=own_work, doubt=doubt)

    def counts(self, published: float) -> float:
        """The speed-up that counts, where that at the published shape is `published`."""
        if self.measured is None:
            return min(1.0, published)
        return self.measured.speedup if self.own_work else min(1.0, published, self.measured.speedup)

    def facts(self, published: float) -> dict[str, Any]:
        """For the evidence."""
        facts: dict[str, Any] = {"sizes": dict(self.sizes), "inputs": self.inputs}
        facts["speedup"] = round(self.counts(published), 4)
        if self.measured is None:
            return facts | {"reference_us": None, "submission_us": None, "refused": self.refused}
        times = {"reference_us": self.measured.reference_us, "submission_us": self.measured.submission_us}
        facts |= {name: round(us, 4) for name, us in times.items()}
        if not self.own_work:
            facts |= {"own_work": False, "measured": round(self.measured.speedup, 4)}
        return facts | self.measured.evidence


def combined(
    across: str, wanted: int, times: Sequence[ShapeTime], dropped: Sequence[Mapping[str, Any]] = ()
) -> tuple[float, dict[str, Any]]:
    """The speed-up over all shapes, the published one first, and `evidence["timed_shapes"]`.

    Args:
        across: a key of ACROSS.
        wanted: how many shapes were asked for.
        dropped: see PreparedTask.
    """
    first = times[0].measured
    assert first, "a submission that is timed runs at the published shape"
    speedup = ACROSS[across]([time.counts(first.speedup) for time in times])
    facts = [time.facts(first.speedup) for time in times]
    facts[0].update({"published": True})
    for key in first.evidence:
        facts[0].pop(key)  # the verdict has it
    evidence: dict[str, Any] = {"across": across, "shapes": facts}
    if len(times) < wanted:
        found = len(times) - 1
        why = "memory gives out at others" if dropped else "the task has no more of comparable work"
        evidence["missing"] = f"{found} of {wanted - 1} other shapes: {why}"
    if dropped:
        evidence["dropped"] = [dict(shape) for shape in dropped]
    return speedup, evidence


def timed(
    speedup: float, measured: Measurement, coverage: float, doubtful: bool, lazy_below: float, **facts: Any
) -> Verdict:
    """The verdict on a submission that is right, with a time.

    Args:
        speedup: over all shapes that are timed.
        measured: at the published shape.
        coverage: the most that is its own work, by what it launches.
        doubtful: whether a time cannot be true.
        facts: other fields of the verdict.
    """
    lazy = speedup < lazy_below
    return Verdict(
        "suspicious" if doubtful else "ok",
        "too_fast" if doubtful else reason_of(speedup, lazy),
        speedup=speedup,
        coverage=min(coverage, measured.own_share),
        reference_ms=measured.reference_us / 1000,
        submission_ms=measured.submission_us / 1000,
        lazy=lazy,
        profile=measured.submission_profile[:PROFILE_ROWS],
        reference_profile=measured.reference_profile[:PROFILE_ROWS],
        **facts,
    )
