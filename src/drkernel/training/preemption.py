"""Signals that announce the end of a job: recorded at once, agreed among ranks between steps, answered by a checkpoint.

SLURM sends SIGUSR1 or SIGUSR2 before a time limit or a preemption (submitit: SIGUSR2), and SIGTERM when a job ends. A
handler cannot save, since saving takes all ranks and each may be in another collective. So the loop asks between steps:

    with Preemption() as preemption:
        for step in ...:
            ...
            if preemption.agreed(ranks):
                save(...)
                preemption.call_previous_handler(ranks)
                return

Inside a job of submitit the previous handler is submitit's: on rank 0 it requeues the job and exits. submitit ignores
SIGTERM; a job that Slurm preempts with SIGTERM alone exits with a code that has it requeued (drkernel.slurm.guard).
Elsewhere there is no previous handler: returning ends the run, and the same command resumes it.
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
"""By precedence, lowest first: submitit requeues on the user signal only, and SIGTERM may come with it."""
WAIT_S = 300.0
"""How long the other ranks wait to be ended while rank 0 requeues. A rank that exits early would count as finished."""

_Handler = Callable[[int, FrameType | None], Any] | int


class Preemption:
    """Installs signal handlers (in the main thread) and restores the previous ones at the end."""

    def __init__(self) -> None:
        self._received = 0  # 1 + index in SIGNALS, 0 for none
        self._agreed = 0
        self._terminated = False
        self._released = False
        self._before = {number: signal.signal(number, self._record) for number in SIGNALS}

    def __enter__(self) -> Preemption:
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def release(self) -> None:
        """From here on a signal acts at once, and the log says that it did. For when all steps are done and saved."""
        self._released = True
        for number, handler in self._before.items():
            signal.signal(number, _announced(signal.SIG_DFL if handler is None else handler))
        if self._received:  # after the last call of `agreed`
            signal.raise_signal(SIGNALS[self._received - 1])

    @property
    def received(self) -> bool:
        """Whether this rank received a signal. Other ranks may not have; `agreed` tells all."""
        return self._received > 0

    def should_stop(self) -> bool:
        """Whether to give up what this rank plays: it received a signal, and there are steps to save (`release`)."""
        return self.received and not self._released

    def agreed(self, ranks: Ranks) -> bool:
        """Collective, all ranks must call it. True on all ranks if any of them received a signal."""
        self._agreed = max(ranks.all_gather_object(lambda: self._received))
        return self._agreed > 0

    def call_previous_handler(self, ranks: Ranks) -> None:
        """Collective, all ranks must call it, after the save. Rank 0 calls the handler that was installed before.

        The handler may requeue the job and exit; meanwhile the other ranks wait to be ended. If it returns, or if there
        is none, the caller ends the run. In a job of submitit this method never returns, since a process that returns
        counts as finished.
        """
        assert self._agreed, "agreed() comes first"
        number = SIGNALS[self._agreed - 1]
        handler = self._before[number]
        self._terminated = False
        if ranks.broadcast_object(lambda: _is_installed(handler)):
            if ranks.is_main:
                assert callable(handler)
                handler(number, None)
            elif number != signal.SIGTERM:
                self._wait_for_the_end()
        if "SUBMITIT_EXECUTOR" in os.environ:
            sys.exit(EXIT_REQUEUE)

    def _wait_for_the_end(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline and not self._terminated:
            time.sleep(min(WAIT_S, 0.1))

    def _record(self, number: int, _: FrameType | None) -> None:
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


def _is_installed(handler: Callable | int | None) -> bool:
    """Whether a handler is neither the system's nor Python's."""
    return callable(handler) and handler is not signal.default_int_handler
