"""What an examination asks of a device. Every device implements `Device`; the examination knows no other part of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.trusted.cases.cases import Case, Seeds
from drkernel.judge.trusted.cases.reference_model import ReferenceModel
from drkernel.judge.trusted.prepare import PreparedTask
from drkernel.judge.trusted.processes.runner_client import RunnerClient
from drkernel.types import KernelTime, Task

P = TypeVar("P", bound=PreparedTask)


@dataclass(frozen=True)
class ExamPolicy:
    """How the cases of an examination are chosen on a device: a published shape costs little on one and much on
    another."""

    budget_factor: float
    """All replies of a submission together may take so many times `ExamConfig.timeout_s`."""
    repeat_cases: int
    """Cases that are asked again at the end; 0 where every timed call is a repetition."""
    lean_cases: bool
    """Whether the regimes are tried at hidden shapes (`plans.lean_plans`), not at the published one (`plans.plans`)."""
    near_repeat_in_fp64: bool
    """Whether nearly the same inputs are a case of their own; else the reference's own outputs are what is expected,
    within the tolerance of the first case."""
    fresh_last_case: bool
    """Whether the last case has new inputs; else it is the first one again, because timed calls have new ones."""


@dataclass(frozen=True)
class Submission:
    """The submission that is to be timed, in a process that has answered all other questions."""

    source: str
    """As it runs: with smaller numbers where the task's network has them."""
    written: str
    """As it was written."""
    client: RunnerClient
    reference_model: ReferenceModel
    """Its counterpart at the published shape."""
    case: Case
    """The given inputs."""
    trace: OpTrace
    """Of a forward on these."""
    seeds: Seeds
    refuse: Callable[[str, str], None]
    """Refuses it as a hack for a reason and with a detail. Returns where the examination is to go on all the same."""
    restart: Callable[[], Submission]
    """The same submission in a new process, in which it has answered the case rightly."""


@dataclass(frozen=True)
class Measurement:
    """How fast a submission is beside the reference."""

    speedup: float
    """reference / submission; where times are measured, the lower end of its interval."""
    reference_us: float
    submission_us: float
    reference_profile: tuple[KernelTime, ...]
    """What one forward launches, longest first."""
    submission_profile: tuple[KernelTime, ...]
    own_share: float = 1.0
    """The proportion of device time in the submission's own kernels, where the device itself tells; else 1."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """For the verdict."""


class Device(Protocol[P]):
    """Where submissions are tried. One object per examiner."""

    policy: ExamPolicy

    def prepare(self, task: Task) -> P:
        """Prepares a task once, for any number of submissions.

        Raises:
            DrKernelError: the task is unusable: the reference fails.
        """

    def measure(self, prepared: P, submission: Submission) -> Measurement:
        """Times a submission that is right.

        Raises:
            VerdictReached: what was seen meanwhile refuses it.
            Failed, PeerClosed, DeadlineExceeded, ProtocolViolation: see RunnerClient.
        """

    def pause(self) -> float:
        """Called now and then while the runner has nothing to do: lets other examiners use the device.

        Returns:
            The seconds that it took.
        """
