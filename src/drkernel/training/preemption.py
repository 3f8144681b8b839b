"""Signals that announce the end: noted at once, agreed among ranks at a step boundary, answered with a checkpoint.

SLURM sends SIGUSR1 or SIGUSR2 before a time limit or a preemption (submitit: SIGUSR2), and SIGTERM when a job ends. A
handler cannot save: that takes all ranks, and each may be in another collective. So the loop asks between steps:

    with Preemption() as preemption:
        for step in ...:
            ...
            if preemption.asked(ranks):
                save(...)
                preemption.hand_over(ranks)
                return

`hand_over` calls the handler that was installed before, which is submitit's inside its jobs: on rank 0 it requeues the
job and exits. submitit ignores SIGTERM; a job that Slurm preempts with it alone exits with a code that has it requeued
(drkernel.slurm.guard). Elsewhere nothing was installed; returning ends the run, and the same command resumes it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from drkernel.slurm.guard import EXIT_REQUEUE, STOPPED
from drkernel.training.ranks import Ranks

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Least telling first: with submitit only the user signal requeues, and SIGTERM may come beside it."""
WAIT_S = 300.0
"""How long the other ranks wait to be ended while rank 0 requeues: one that left early would count as finished."""

_Handler = Callable[[int, FrameType | None], Any] | int


class Preemption:
    """Installs the handlers (in the main thread) and takes them back at the end."""

    def __init__(self) -> None:
        self._received = 0  # 1 + index in SIGNALS, 0 for none
        self._agreed = 0
        self._terminated = False
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}

    def __enter__(self) -> Preemption:
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def release(self) -> None:
        """From here on a signal acts at once, and the log says that it did. For when all steps are done and saved."""
        for number, handler in self._before.items():
            signal.signal(number, _announced(signal.SIG_DFL if handler is None else handler))
        if self._received:  # after the last call of `asked`
            signal.raise_signal(SIGNALS[self._received - 1])

    @property
    def noted(self) -> bool:
        """This rank received a signal; others may not know yet. For giving up a rollout early, all ranks by `asked`."""
        return self._received > 0

    def asked(self, ranks: Ranks) -> bool:
        """True on all ranks where any of them received a signal. To be called by all at the same point of a step."""
        self._agreed = max(ranks.each(lambda: self._received))
        return self._agreed > 0

    def hand_over(self, ranks: Ranks) -> None:
        """After the save: let the handler that was there before decide. It may requeue and exit; if it returns, or if
        there was none, the caller ends the run. Other ranks then wait for their end where rank 0 has a handler.

        Never returns in a job of submitit, where to return would be to have finished.
        """
        assert self._agreed, "asked() comes first"
        number = SIGNALS[self._agreed - 1]
        handler = self._before[number]
        self._terminated = False
        if ranks.share(lambda: _is_own(handler)):
            assert callable(handler) or not ranks.first
            if ranks.first:
                handler(number, None)
            elif number != signal.SIGTERM:
                self._wait_for_the_end()
        if "SUBMITIT_EXECUTOR" in os.environ:
            sys.exit(EXIT_REQUEUE)

    def _wait_for_the_end(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline and not self._terminated:
            time.sleep(min(WAIT_S, 0.1))

    def _note(self, number: int, _: FrameType | None) -> None:
        self._received = max(self._received, 1 + SIGNALS.index(signal.Signals(number)))
        self._terminated |= number == signal.SIGTERM


def _announced(handler: _Handler) -> _Handler:
    """The handler, after a line that tells the log why the run ends."""
    if handler == signal.SIG_IGN:
        return handler

    def act(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGTERM or "SUBMITIT_EXECUTOR" not in os.environ:  # submitit ignores SIGTERM
            os.write(1, f"{STOPPED} after the last step; the same command goes on\n".encode())
        if callable(handler):
            handler(number, frame)
        else:
            signal.signal(number, handler)
            signal.raise_signal(number)

    return act


def _is_own(handler: Callable | int | None) -> bool:
    """Whether somebody installed a handler, and it is neither the system's nor Python's."""
    return callable(handler) and handler is not signal.default_int_handler
