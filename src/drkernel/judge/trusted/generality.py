"""Whether a submission works at other shapes than the published one: a clear error is allowed there, wrong outputs are
not."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from drkernel.judge.boundary.framing import DeadlineExceeded, PeerClosed
from drkernel.judge.trusted.cases import plans
from drkernel.judge.trusted.cases.cases import Case
from drkernel.judge.trusted.cases.plans import Plan
from drkernel.judge.trusted.paired_models import PairedModels
from drkernel.judge.trusted.processes.failures import Failed
from drkernel.judge.trusted.processes.runner_client import RunnerClient
from drkernel.judge.trusted.verdicts import VerdictReached, verdict_of_failure
from drkernel.types import DrKernelError

T = TypeVar("T")
_LACKING = ("timeout", "out_of_memory")
"""Reasons of errors that an interpreter has where a GPU has none."""


class Generality:
    """What is known of one submission.

    Args:
        strict: wrong outputs at another shape refuse it; else it is not general.
        source: of the submission.
    """

    def __init__(self, strict: bool, source: str):
        self._strict, self._source = strict, source
        self.general = True
        """Whether it works wherever it was asked."""
        self.evidence: dict[str, Any] = {}
        """What it said or did where it does not, if it does not."""

    def allow_errors(self, client: RunnerClient, ask: Callable[[], T], timed: bool = False) -> T | None:
        """Asks at another shape. Returns the answer; None where it does not work there.

        Args:
            timed: whether times are taken there. It is a secret then which shape that is, so details name none, and
                memory may not give out, since the shape is of about the published size.

        Raises:
            VerdictReached: the outputs are wrong, or the process died.
            Failed: memory gives out at a shape that is timed.
        """
        try:
            return without_words(ask) if timed else ask()
        except Failed as failure:
            if timed and verdict_of_failure(failure, self._source).reason == "out_of_memory":
                raise
            self.note(failure)
        except PeerClosed:
            if client.used_full_timeout:
                raise  # it would have died anywhere
            detail = "the process died on another shape"
            raise VerdictReached("not_general", "crash_on_other_shape", detail) from None
        except VerdictReached as reached:
            verdict = reached.verdict
            if self._strict:
                detail = f"{verdict.reason} (case: {verdict.evidence['case']})" if timed else verdict.detail
                raise VerdictReached("not_general", "wrong_on_other_shape", detail, **verdict.evidence) from None
            self._note(verdict.detail)
        return None

    def ask_resized(self, pair: PairedModels, modes: tuple[bool, ...], number: int) -> None:
        """Asks the model of the published shape at so many other sizes of its inputs. It may raise an error there.

        Raises:
            VerdictReached: outputs are wrong.
        """

        def ask(plan: Plan) -> None:
            with contextlib.suppress(DrKernelError):
                try:
                    if (case := pair.draw(plan)) and case.can_tell():
                        pair.ask(case)
                except Failed as failure:
                    self._expect_within(failure)

        for plan in plans.resized_plans(modes, number):
            self.allow_errors(pair.client, functools.partial(ask, plan))

    def ask_long_shapes(self, pair: PairedModels, modes: tuple[bool, ...], number: int) -> None:
        """Asks where one size is long, for so many sizes. That costs time, so it is asked last, and has the time of one
        reply of its own: who used up its time before is asked, too. Who takes too long there has the verdict that it
        had, and the evidence says so.

        Raises:
            VerdictReached: outputs are wrong, or accesses out of bounds.
        """
        pair.client.extend_deadline(pair.client.timeout_s)

        def ask(case: Case) -> None:
            try:
                pair.ask(case)
            except Failed as failure:
                if verdict_of_failure(failure, self._source).reason not in _LACKING:
                    raise
                self.evidence["long_shapes"] = f"{failure.kind}: {failure.message}"[:300]

        try:
            for chosen in plans.long_plans(modes, number):
                if case := next(filter(None, map(pair.draw, chosen)), None):
                    self.allow_errors(pair.client, functools.partial(ask, case))
        except Failed as failure:  # no model is made at such a size
            self.note(failure)
        except (DeadlineExceeded, PeerClosed):
            self.evidence["long_shapes"] = "not all were answered in time"

    def note(self, failure: Failed) -> None:
        """Notes that it refuses another shape; to read or write outside of its tensors is no refusal."""
        self._expect_within(failure)
        self._note(f"{failure.kind}: {failure.message}"[:300])

    def _expect_within(self, failure: Failed) -> None:
        if verdict_of_failure(failure, self._source).reason == "out_of_bounds" and self._strict:
            raise VerdictReached("not_general", "crash_on_other_shape", failure.message)

    def _note(self, text: str) -> None:
        self.general = False
        self.evidence.setdefault("other_shape", text)


def without_words(ask: Callable[[], T]) -> T:
    """Asks at a shape that is timed. Replaces the submission's error message, which could name the secret shape."""
    try:
        return ask()
    except Failed as failure:
        raise Failed(failure.kind, "an error at another shape", failure.line) from None
