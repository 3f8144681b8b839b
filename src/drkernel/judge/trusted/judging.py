"""What an examiner asks about one submission, and in which order. It is the same on every device:

1. static check               Does its source name what no submission may use, or has it no Triton kernel?
2. examination                Is it right, honest and fast? See `examination`.
3. KernelBench's criterion    What would KernelBench say? Where nobody asks for it, it is left out; see `criterion`.
4. decision                   Which of the two verdicts counts, and what its evidence says besides.

How a runner is started and ended, what a crash means and what is inconclusive is the business of each device's
examiner (devices/simulated/examiner.py, devices/cuda/examiner.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from drkernel.judge.boundary.framing import PeerClosed
from drkernel.judge.devices.base import Device, P
from drkernel.judge.trusted import criterion
from drkernel.judge.trusted.cases.cases import Seeds
from drkernel.judge.trusted.criterion import Finding, KernelBenchTrials
from drkernel.judge.trusted.exam_config import ExamConfig, deferred_refusal
from drkernel.judge.trusted.examination import Examination
from drkernel.judge.trusted.processes.zygote import Process
from drkernel.judge.trusted.source import static_check
from drkernel.types import Task, Verdict


@dataclasses.dataclass(frozen=True)
class Judging:
    """One submission with one examiner."""

    config: ExamConfig
    secret: bytes
    task: Task
    source: str

    def ask(
        self,
        examine: Callable[[], Verdict],
        try_kernelbench: Callable[[], Finding],
        statically_checked: bool = False,
        kernelbench_first: bool = False,
    ) -> tuple[Verdict | None, Finding | None]:
        """This judge's own verdict, and what KernelBench's criterion says, where it is asked for.

        Where a runner's process ended before it answered (PeerClosed), what is not known by then stays None.

        Args:
            examine: runs the examination.
            try_kernelbench: runs the trials of KernelBench's criterion.
            statically_checked: somebody else has asked the first question, and the source passed.
            kernelbench_first: the third question comes before the others.
        """
        own, found = None, None
        with contextlib.suppress(PeerClosed):
            if kernelbench_first:
                found = self._by_kernelbench(try_kernelbench)
            own = (None if statically_checked else self._refused()) or examine()
            if not kernelbench_first:
                found = self._by_kernelbench(try_kernelbench)
        return own, found

    def _refused(self) -> Verdict | None:
        """The verdict on what the static check refuses."""
        if not self.config.gate:
            return None
        found = static_check.inspect(self.source, self.task.submission_name, not self.config.price_hacks)
        return found.to_verdict() if found else None

    def _by_kernelbench(self, try_kernelbench: Callable[[], Finding]) -> Finding | None:
        if self.config.criterion == "drkernel":
            return None
        return criterion.refused(self.source, self.task.submission_name) or try_kernelbench()

    @property
    def deferred_refusal(self) -> Verdict | None:
        """As `exam_config.deferred_refusal`."""
        return deferred_refusal(self.config, self.source, self.task.submission_name)

    def examination(
        self,
        device: Device[P],
        prepared: P,
        process: Process,
        source: str,
        restart: Callable[[], Process] | None = None,
        products: frozenset[str] = frozenset(),
    ) -> Examination[P]:
        """The examination of the submission; arguments as those of Examination.

        Args:
            source: what runs: the submission's source, or that with smaller numbers.
        """
        seeds = Seeds(self.secret, static_check.digest(self.source), self.task.digest)
        given = device, prepared, self.config, seeds, process, source, restart
        return Examination(*given, self.deferred_refusal, products, self.source)

    def trials(
        self,
        device: Device[P],
        prepared: P,
        process: Process,
        source: str,
        restart: Callable[[], Process] | None = None,
    ) -> KernelBenchTrials[P]:
        """The trials of KernelBench's criterion; arguments as those of `examination`."""
        seeds = Seeds(self.secret, "kernelbench", static_check.digest(self.source), self.task.digest)
        return KernelBenchTrials(device, prepared, self.config, seeds, process, source, restart)

    def decided(self, own: Verdict, found: Finding | None, evidence: dict[str, Any]) -> Verdict:
        """The verdict that counts, with the device's name and this evidence besides.

        Args:
            own, found: as from `ask`.
        """
        verdict = criterion.decided(self.config.criterion, own, found)
        return dataclasses.replace(verdict, device=self.config.device, evidence=verdict.evidence | evidence)
