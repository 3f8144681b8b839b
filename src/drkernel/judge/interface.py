"""The two interfaces of the judge: what its users call, and what does the work behind it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from drkernel.types import Task, Verdict


class JudgeProtocol(Protocol):
    """What rollouts and studies call. `service.Judge` judges in processes of its own. `remote.Client` asks the Judge of
    another process of this node, `network.client.RemoteJudge` those of other machines."""

    def submit(self, task: Task, source: str) -> Future[Verdict]:
        """Judges in the background. The future raises DrKernelError where the task is unusable."""

    def judge(self, task: Task, source: str) -> Verdict:
        """As `submit`, and waits."""

    def check_task(self, task: Task) -> str:
        """Raises DrKernelError where the reference fails or cannot be shrunk. Where trivial outputs would pass, it
        raises, too, or says which, as the judge is set; else it returns an empty text. Where the judge itself fails it
        raises NotPrepared, which says nothing of the task."""

    def close(self) -> None:
        """Gives up what still waits."""


class Backend(Protocol):
    """What owns the worker processes of a Judge: one backend simulates a GPU, another one measures on GPUs.

    A submission that was taken gets its verdict even where worker processes die.
    """

    def enqueue(self, task: Task, source: str | None) -> Future:
        """A verdict to come. Without a source, whether the task is usable: what check_task returns, or
        DrKernelError."""

    def doing(self) -> list[str]:
        """What the examiners do now, for people who wonder why no verdict comes."""

    def close(self) -> None:
        """Ends the worker processes. Submissions that still wait are cancelled, or fail with DrKernelError."""
