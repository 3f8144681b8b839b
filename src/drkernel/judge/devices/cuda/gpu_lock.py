"""Whose turn it is on a GPU: many may compute on it together, or one alone, in all processes of a machine.

Locks are files (`flock`), so whoever dies lets go. Each `GpuLock` is a gate and a room: who enters passes the gate
first, and who wants to be alone keeps the gate closed until all others have left. So nobody waits for ever, and those
inside can see that they are waited for.
"""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

Meanwhile = Callable[[], contextlib.AbstractContextManager]


class GpuLock:
    """One shared or exclusive lock. Not for threads: one object per holder."""

    def __init__(self, path: Path):
        self._gate, self._room = (open(f"{path}.{name}.lock", "a") for name in ("gate", "room"))  # noqa: SIM115

    def enter(self, alone: bool, waiting: Meanwhile = contextlib.nullcontext) -> None:
        """`waiting` is what happens here while somebody is in the way."""
        if not self._pass(alone, fcntl.LOCK_NB, fcntl.LOCK_NB):
            with waiting():
                self._pass(alone)

    def rise(self) -> bool:
        """From among others to alone, when they have left; False at once where another waits for that already."""
        return self._pass(True, gate=fcntl.LOCK_NB)

    def _pass(self, alone: bool, gate: int = 0, room: int = 0) -> bool:
        """Through the gate into the room; with LOCK_NB False where either would take time."""
        kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        try:
            fcntl.flock(self._gate, kind | gate)
        except BlockingIOError:
            return False
        try:
            fcntl.flock(self._room, kind | room)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        return True

    def leave(self) -> None:
        fcntl.flock(self._room, fcntl.LOCK_UN)

    @property
    def wanted(self) -> bool:
        """Whether somebody waits at the gate for all others to leave."""
        try:
            fcntl.flock(self._gate, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        return False


class GpuBusy(Exception):
    """The GPU is busy although nobody else should compute; an examination among others says nothing then."""


class GpuUnhealthy(Exception):
    """The GPU does not pass its probe, has no room, or starts no runner: the process gives up, and is started anew when
    the GPU has recovered."""


def floor(uuid: object) -> GpuLock:
    """Whoever computes on this GPU beside a judge holds it, shared; whoever measures holds it alone."""
    return GpuLock(Path(tempfile.gettempdir()) / f"drkernel-gpu-{uuid}.floor")


class GpuLease:
    """One examination's lease on a GPU: among others, but for the moments in which it is `alone`.

    Args:
        uuid: of the GPU.
        check: check(sole) is called when the GPU should be free of others, and raises where it is not.
        quiet: what happens here while others are alone, and while this examination's calls are timed.
    """

    def __init__(self, uuid: object, check: Callable[[bool], None], quiet: Meanwhile):
        self._house, self._floor = GpuLock(Path(tempfile.gettempdir()) / f"drkernel-gpu-{uuid}.house"), floor(uuid)
        self._check, self.quiet = check, quiet
        self._begin(sole=False)

    def _begin(self, sole: bool) -> None:
        self.sole, self.waited, self.held = sole, 0.0, 0.0
        self.resting: Meanwhile = contextlib.nullcontext

    @contextlib.contextmanager
    def taken(self, sole: bool) -> Iterator[None]:
        """Holds the GPU from the beginning to the end of an examination; `sole`: nobody else holds one meanwhile.

        `waited` and `held` count the seconds for which it waited for others, and others for it. `resting` is what
        happens to its runner while others are alone.
        """
        self._begin(sole)
        began = asked = time.monotonic()
        self._house.enter(sole, self.quiet)
        try:
            self._floor.enter(sole, self.quiet)
            began = time.monotonic()
            self.waited = began - asked
            if sole:
                self._check(True)
            yield
        finally:
            if sole:
                self.held = time.monotonic() - began
            self._floor.leave()
            self._house.leave()

    def pause(self) -> float:
        """Lets those pass who want to be alone; the runner must have nothing to do. Returns how long that took."""
        return self._enter(alone=False) if not self.sole and self._floor.wanted else 0.0

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else computes on the GPU meanwhile; the runner must have nothing to do before and after.

        What its own examiner prepares could still disturb what is timed, which must be `quiet` as well.
        """
        self._enter(alone=True)
        began = time.monotonic()
        try:
            with self.quiet():
                self._check(self.sole)
            yield
        finally:
            if not self.sole:
                self.held += time.monotonic() - began
            self._enter(alone=False)

    def _enter(self, alone: bool) -> float:
        if self.sole:
            return 0.0
        torch.cuda.synchronize()
        began = time.monotonic()
        with self.resting():
            if not (alone and self._floor.rise()):
                with self.quiet():  # before another is alone
                    self._floor.leave()
                    self._floor.enter(alone)
        self.waited += (waited := time.monotonic() - began)
        return waited
