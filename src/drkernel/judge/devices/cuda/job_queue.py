"""The queue of jobs that wait for an examiner. Runs in the process of the Judge.

An examiner that has prepared a task gets the submissions to it, unless they wait too long.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from typing import Generic, Protocol, TypeVar

from drkernel.types import Task

MANY, LONG_S = 8, 5.0
"""Submissions of one task that may wait for its examiner, and seconds, before another one prepares the task, too."""
STUCK_S = 2.0
"""An examiner that has been at one job for so long leaves the submissions to its tasks to others."""
_LATER = 3
"""The rank of a job that is left to another examiner."""
_AHEAD, _SOON_S = 2, 0.2
"""An examiner with so many more tasks than another leaves new ones to that one, for so many seconds."""


class Job(Protocol):
    task: Task
    source: str | None
    """None: the task is to be prepared."""


J = TypeVar("J", bound=Job)


class AffinityQueue(Generic[J]):
    """Jobs by order of arrival, for examiners 0 to n - 1."""

    def __init__(self, examiners: int):
        self._examiners = range(examiners)
        self._jobs: list[tuple[float, J]] = []
        """Each with the time of its arrival."""
        self._owners: dict[str, set[int]] = defaultdict(set)
        """Examiners that have prepared a task, by its digest."""
        self._taken: dict[int, float] = {}
        """When each examiner that is at work took its job."""
        self._changed, self._closed = threading.Condition(), False

    def put(self, job: J) -> None:
        with self._changed:
            self._jobs.append((time.monotonic(), job))
            self._changed.notify_all()

    def take(self, examiner: int) -> J | None:
        """The next job for an examiner, which then has its task prepared. Blocks; None once all is closed."""
        with self._changed:
            self._taken.pop(examiner, None)
            while not self._closed:
                index = self._choice(examiner)
                if index is not None:
                    _, job = self._jobs.pop(index)
                    self._taken[examiner] = time.monotonic()
                    self._owners[job.task.digest].add(examiner)
                    return job
                self._changed.wait(_SOON_S)
        return None

    def forget(self, examiner: int) -> None:
        """Notes that an examiner was started anew and has no task prepared."""
        with self._changed:
            for owners in self._owners.values():
                owners.discard(examiner)

    def close(self) -> None:
        with self._changed:
            self._jobs.clear()
            self._closed = True
            self._changed.notify_all()

    def _choice(self, examiner: int) -> int | None:
        """The index of the job to take: submissions to tasks that this examiner has prepared, then those that no other
        examiner will take soon (it has been at another job for long), then new tasks. So the first verdicts do not wait
        for all tasks. While submissions are compiled, there is time to prepare others."""
        counts, now = Counter(job.task.digest for _, job in self._jobs), time.monotonic()
        load = Counter(owner for owners in self._owners.values() for owner in owners)
        ahead = load[examiner] - min(load[other] for other in self._examiners)

        def rank(index: int) -> int:
            since, job = self._jobs[index]
            owners = self._owners[job.task.digest]
            if job.source is None:
                return 2 if ahead < _AHEAD or since < now - _SOON_S else _LATER
            if examiner in owners:
                return 0
            stuck = all(self._taken.get(owner, now) < now - STUCK_S for owner in owners)
            return 1 if stuck or since < now - LONG_S or counts[job.task.digest] >= MANY else _LATER

        best = min(range(len(self._jobs)), key=rank, default=None)
        return None if best is None or rank(best) == _LATER else best
