"""Who may compute on a GPU: many processes together, or one exclusively, across all processes of a machine.

Examiners, and the engine of a training run on the same GPU, run this module. `GpuLock` is a readers-writer lock; a
waiting writer blocks new readers, so nobody waits for ever. It consists of files (`flock`), so the lock of a process
that dies is released.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import torch

from drkernel.types import DrKernelError, Verdict

FOLDER = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp")
"""Where the files are: not in the temporary folder, of which users and jobs may have their own."""
Meanwhile = Callable[[], contextlib.AbstractContextManager]


class GpuLock:
    """A lock that is acquired shared (by readers) or exclusively (by a writer). Not for threads: one object per holder.

    There are two files. Whoever acquires the lock first locks the entry, in the same mode, and unlocks it once the lock
    itself is acquired. A waiting writer thus keeps the entry, which blocks new readers, and holders can see it.
    """

    def __init__(self, path: Path):
        self._entry, self._lock = (shared_file(Path(f"{path}.{name}.lock")) for name in ("entry", "lock"))

    def acquire(self, exclusive: bool, waiting: Meanwhile = contextlib.nullcontext) -> None:
        """Waits for the lock. `waiting` is entered here while somebody else holds it."""
        if not self._try(exclusive, fcntl.LOCK_NB, fcntl.LOCK_NB):
            with waiting():
                self._try(exclusive)

    def upgrade(self) -> bool:
        """From shared to exclusive, once others have released it; False at once where another one waits for that."""
        return self._try(True, entry_flags=fcntl.LOCK_NB)

    def _try(self, exclusive: bool, entry_flags: int = 0, lock_flags: int = 0) -> bool:
        """Acquires the entry, then the lock. With LOCK_NB, False where that would take time."""
        mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        try:
            fcntl.flock(self._entry, mode | entry_flags)
        except BlockingIOError:
            return False
        try:
            fcntl.flock(self._lock, mode | lock_flags)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(self._entry, fcntl.LOCK_UN)
        return True

    def release(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    @property
    def writer_waits(self) -> bool:
        """Whether somebody waits to hold the lock exclusively."""
        try:
            fcntl.flock(self._entry, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._entry, fcntl.LOCK_UN)
        return False


class GpuBusy(Exception):
    """The GPU is busy although nobody else should compute: what an examination that shares it finds says nothing."""


class GpuUnhealthy(Exception):
    """The GPU fails its probe, has no memory left, or starts no runner. The examiner gives up, and is started anew when
    the GPU has recovered."""

    verdict: Verdict | None = None
    """What was found of the submission that had the GPU for itself when it failed, where it may be the cause."""


def shared_path(uuid: object, what: str) -> Path:
    """Where all who use a GPU find what they share."""
    return FOLDER / f"drkernel-gpu-{uuid}.{what}"


def shared_file(path: Path) -> TextIO:
    """A file that all users of the machine may change; it is made where there is none.

    An existing one is opened without O_CREAT, which Linux refuses for a file of another user in a folder like /tmp.

    Raises:
        DrKernelError: it cannot be opened.
    """
    try:
        if not path.exists():
            _make(path)
        return open(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+", encoding="utf-8")
    except OSError as error:
        raise DrKernelError(f"{path}: {error.strerror}; expected a file that this user may change") from error


def _make(path: Path) -> None:
    """Makes a shared file, which appears with its permissions, whatever the umask is."""
    descriptor, made = tempfile.mkstemp(dir=path.parent)
    try:
        os.fchmod(descriptor, 0o666)
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.link(made, path)
    finally:
        os.close(descriptor)
        os.unlink(made)


def gpu_lock(uuid: object) -> GpuLock:
    """The lock of a GPU: shared by all who compute on it, and exclusive for whoever measures on it."""
    return GpuLock(shared_path(uuid, "compute"))


def examination_lock(uuid: object) -> GpuLock:
    """Held by an examination from its beginning to its end: shared, or exclusive where it must be the only one."""
    return GpuLock(shared_path(uuid, "examine"))


class GpuLease:
    """The lease of an examiner on its GPU, held by one examination after the other.

    An examination usually shares the GPU, and is exclusive only while it is timed. It may also hold the GPU exclusively
    from its beginning to its end.

    Args:
        uuid: of the GPU.
        check: check(exclusive) is called when nobody else should be computing, and raises where somebody is.
        quiet: entered here while others hold the GPU exclusively, and while this examination's calls are timed.
    """

    def __init__(self, uuid: object, check: Callable[[bool], None], quiet: Meanwhile):
        self._examinations, self._gpu = examination_lock(uuid), gpu_lock(uuid)
        self._check, self.quiet = check, quiet
        self._begin(exclusive=False)

    def _begin(self, exclusive: bool) -> None:
        self.exclusive, self.waited_s, self.exclusive_s = exclusive, 0.0, 0.0
        self.stop_runner: Meanwhile = contextlib.nullcontext

    @contextlib.contextmanager
    def hold(self, exclusive: bool) -> Iterator[None]:
        """Holds the GPU for one examination; `exclusive`: no other examination holds it meanwhile.

        `waited_s` counts the seconds for which it waited for others, and `exclusive_s` those for which others could not
        compute. `stop_runner` is entered while others hold the GPU exclusively.
        """
        self._begin(exclusive)
        began = asked = time.monotonic()
        self._examinations.acquire(exclusive, self.quiet)
        try:
            self._gpu.acquire(exclusive, self.quiet)
            began = time.monotonic()
            self.waited_s = began - asked
            if exclusive:
                self._check(True)
            yield
        finally:
            if exclusive:
                self.exclusive_s = time.monotonic() - began
            self._gpu.release()
            self._examinations.release()

    def pause(self) -> float:
        """Lets those go first who wait to hold the GPU exclusively. The runner must be idle.

        Returns:
            The seconds that it took.
        """
        return self._reacquire(exclusive=False) if not self.exclusive and self._gpu.writer_waits else 0.0

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """Nobody else computes on the GPU meanwhile. The runner must be idle before and after.

        What this examiner prepares could still disturb what is timed, so that must be `quiet` as well.
        """
        self._reacquire(exclusive=True)
        began = time.monotonic()
        try:
            with self.quiet():
                self._check(self.exclusive)
            yield
        finally:
            if not self.exclusive:
                self.exclusive_s += time.monotonic() - began
            self._reacquire(exclusive=False)

    def _reacquire(self, exclusive: bool) -> float:
        """Changes the mode in which the GPU is held; shared to shared, it lets others go first. Returns the seconds."""
        if self.exclusive:
            return 0.0
        torch.cuda.synchronize()
        began = time.monotonic()
        with self.stop_runner():
            if not (exclusive and self._gpu.upgrade()):
                with self.quiet():  # before another one is exclusive
                    self._gpu.release()
                    self._gpu.acquire(exclusive)
        self.waited_s += (waited_s := time.monotonic() - began)
        return waited_s
