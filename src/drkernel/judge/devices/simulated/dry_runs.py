"""Runs of a submission's host code on tensors without data, at the sizes that count.

Each happens in a process of its own: what a submission keeps of such tensors, or how it fails, must not change what its
other calls do.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.utils._pytree import tree_map_only

from drkernel.judge.boundary.framing import DeadlineExceeded, PeerClosed
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.boundary.shared_tensors import NotSerializable
from drkernel.judge.devices.base import Submission
from drkernel.judge.trusted.prepare import PreparedTask
from drkernel.judge.trusted.processes.failures import Failed, Unanswered
from drkernel.judge.trusted.processes.runner_client import RunnerClient
from drkernel.judge.trusted.processes.zygote import Process
from drkernel.judge.trusted.sizes.small_data import few, many
from drkernel.judge.trusted.sizes.without_data import on_meta
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError

NO_ANSWER = (Failed, DeadlineExceeded, PeerClosed, NotSerializable, DrKernelError)
"""Where something needs data, or takes too long: right code may do so."""
_ANSWERS_S = 4.0
"""Seconds that a run takes at most whose answers are given."""


class DryRuns:
    """Those of one submission.

    Args:
        start: a runner that has not been asked anything yet.
    """

    def __init__(self, prepared: PreparedTask, submission: Submission, start: Callable[[], Process]):
        self._prepared, self._submission, self._start = prepared, submission, start

    def run(self, answers: Sequence[bool] = ()) -> OpTrace:
        """The launches of a forward, within the time that the submission has left.

        Args:
            answers: to the first questions about data, over and over; see untrusted.simulated.guesses.

        Raises:
            Unanswered, DrKernelError, and what RunnerClient raises.
        """
        reference = Reference(self._prepared.task, self._prepared.sizes)
        return self._launched(self._submission.written, reference, answers)

    def under_answers(self) -> list[OpTrace | Failed | None]:
        """The launches where answers are yes, and where they are no; the error of the submission, or None where nothing
        is known."""
        return [self._under((True,)), self._under((False,))]

    def under_mixed_answers(self) -> Iterator[OpTrace | Failed | None]:
        """The same for others of three answers."""
        for answers in itertools.product((True, False), repeat=3):
            if len(set(answers)) > 1:
                yield self._under(answers)

    def _under(self, answers: Sequence[bool]) -> OpTrace | Failed | None:
        try:
            return self.run(answers)
        except Unanswered:
            return None
        except Failed as failure:
            return failure
        except NO_ANSWER:
            return None

    def is_of_the_sizes(self, error: Failed) -> bool:
        """Whether an error at these sizes has nothing to do with missing data: it is the submission's own, or the same
        host code runs to its end, and reads nothing, on tensors without data that are small."""
        if not isinstance(error, Unanswered):
            return True
        if not error.unclear:
            return False
        with contextlib.suppress(*NO_ANSWER):
            return not self._launched(self._submission.source, self._prepared.reference).read
        return False

    def _launched(self, source: str, reference: Reference, answers: Sequence[bool] = ()) -> OpTrace:
        init, inputs = given(reference)
        process, submission, task = self._start(), self._submission, self._prepared.task
        try:
            left = submission.client.deadline() - time.monotonic()
            client = RunnerClient(process, min(left, _ANSWERS_S) if answers else left, budget_factor=1.0)
            try:
                client.load(source, task.submission_name, task.precision)
            except Failed as failure:  # it was loaded before, where it had the memory that it needs
                raise Unanswered(failure) from None
            return client.dry_run(init, inputs, submission.case.plan.train, submission.seeds("programs"), answers)
        finally:
            process.end()


def of_published_sizes(failure: Failed) -> Failed:
    """The failure, whose message says where it happens."""
    return Failed(failure.kind, f"{failure.message} (at the published sizes)", failure.line)


def given(reference: Reference) -> tuple[list, list]:
    """The arguments of a model and of its forward, without data.

    Raises:
        DrKernelError: they cannot be made without large data.
    """
    with contextlib.suppress(DrKernelError), on_meta():
        return list(reference.init_args()), reference.inputs(0)
    meta = lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
    for run in (few, many):
        with contextlib.suppress(DrKernelError):
            with run():
                found = list(reference.init_args()), reference.inputs(0)
            return tree_map_only(torch.Tensor, meta, found)
    raise DrKernelError(f"task {reference.task.id}: its inputs cannot be made without large data")
