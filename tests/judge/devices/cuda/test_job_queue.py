"""Which examiner takes which job: tasks are prepared once where that is fast enough, and nothing waits for ever."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from drkernel.judge.devices.cuda import job_queue
from drkernel.judge.devices.cuda.job_queue import LONG_S, MANY, STUCK_S, AffinityQueue
from drkernel.types import Task

HUNG_S = 5.0
"""No test takes that long unless it fails."""


@dataclass(frozen=True)
class Job:
    task: Task
    source: str | None


def new(name: str) -> Job:
    return Job(Task(name, f"# {name}"), None)


def answer(name: str, number: int = 0) -> Job:
    return Job(Task(name, f"# {name}"), f"# {number}")


@pytest.fixture
def clock(monkeypatch):
    """What the queue takes for the time; stands still unless a test moves it."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(job_queue, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.fixture
def two(clock):
    """For two examiners."""
    return AffinityQueue(2)


def put(queue: AffinityQueue, *jobs: Job) -> None:
    for job in jobs:
        queue.put(job)


class Taking:
    """One call of `take` in a thread of its own."""

    def __init__(self, queue: AffinityQueue, examiner: int):
        self._taken: list[Job | None] = []
        self._thread = threading.Thread(target=lambda: self._taken.append(queue.take(examiner)), daemon=True)
        self._thread.start()

    def waits(self, seconds: float = 0.03) -> bool:
        self._thread.join(seconds)
        return self._thread.is_alive()

    def result(self) -> Job | None:
        self._thread.join(HUNG_S)
        assert self._taken, "take does not return"
        return self._taken[0]


def take(queue: AffinityQueue, examiner: int) -> Job | None:
    return Taking(queue, examiner).result()


def prepare(queue: AffinityQueue, examiner: int, *names: str) -> None:
    """The examiner has these tasks, which are still unknown, from here on."""
    for name in names:
        queue.put(new(name))
        assert take(queue, examiner) == new(name)


def test_jobs_of_a_kind_are_taken_in_the_order_of_their_arrival(clock):
    queue = AffinityQueue(1)
    put(queue, new("a"), new("b"))
    assert [take(queue, 0) for _ in range(2)] == [new("a"), new("b")]
    put(queue, answer("b", 1), answer("a", 2), answer("b", 3))
    assert [take(queue, 0) for _ in range(3)] == [answer("b", 1), answer("a", 2), answer("b", 3)]


def test_submissions_come_before_new_tasks_so_that_first_verdicts_do_not_wait_for_all(two):
    prepare(two, 0, "a")
    put(two, new("b"), answer("a"))
    assert take(two, 0) == answer("a") and take(two, 0) == new("b")


def test_submissions_go_to_the_examiner_that_prepared_their_task(two):
    prepare(two, 0, "a")
    prepare(two, 1, "b")
    put(two, answer("a"), answer("b"))
    assert take(two, 1) == answer("b")
    put(two, answer("b"))
    assert take(two, 0) == answer("a")


def test_who_has_prepared_a_task_takes_its_submissions_before_those_of_nobody(two):
    prepare(two, 0, "a")
    put(two, answer("unknown"), answer("a"))
    assert take(two, 0) == answer("a") and take(two, 0) == answer("unknown")


def test_a_submission_whose_task_nobody_has_is_anybodys_at_once(two):
    put(two, answer("a", 1), answer("a", 2))
    assert take(two, 1) == answer("a", 1)
    put(two, answer("unknown"))
    assert take(two, 0) == answer("unknown"), "who took the first has the task"


def test_an_examiner_far_ahead_leaves_new_tasks_to_another_for_a_moment(two, clock):
    prepare(two, 0, "a", "b")
    put(two, new("c"), new("d"), answer("a"))
    assert take(two, 0) == answer("a")
    assert take(two, 1) == new("c")
    assert take(two, 0) == new("d"), "no longer far ahead"
    put(two, new("e"), answer("a"))
    assert take(two, 0) == answer("a")
    clock.now += job_queue._SOON_S + 0.01
    assert take(two, 0) == new("e"), "the other had its moment"


def test_who_left_a_new_task_to_another_comes_back_for_it(monkeypatch):
    monkeypatch.setattr(job_queue, "_SOON_S", 0.01)
    queue = AffinityQueue(2)
    put(queue, new("a"), new("b"))
    assert [take(queue, 0) for _ in range(2)] == [new("a"), new("b")]
    put(queue, new("c"))
    assert take(queue, 0) == new("c")


def test_what_has_waited_long_is_taken_by_others_as_well(two, clock):
    prepare(two, 0, "a")
    put(two, answer("a", 1), answer("a", 2), answer("unknown"))
    assert take(two, 1) == answer("unknown"), "a submission that came earlier still waits for its examiner"
    clock.now += LONG_S + 0.01
    assert take(two, 1) == answer("a", 1)
    put(two, answer("a", 3))
    assert [take(two, 1), take(two, 0)] == [answer("a", 2), answer("a", 3)], "now both have the task"


def test_many_submissions_to_one_task_are_shared(two):
    prepare(two, 0, "a")
    put(two, *(answer("a", number) for number in range(MANY - 1)), answer("unknown"))
    assert take(two, 1) == answer("unknown"), "one fewer are left to their examiner"
    put(two, answer("a", MANY - 1))
    taken = [take(two, (number + 1) % 2) for number in range(MANY)]
    assert taken == [answer("a", number) for number in range(MANY)]


def test_an_examiner_that_began_anew_has_nothing(two):
    prepare(two, 0, "a", "b")
    two.forget(0)
    put(two, new("c"))
    assert take(two, 0) == new("c"), "it is no longer ahead"
    put(two, answer("a"), answer("c"))
    assert [take(two, 0), take(two, 1)] == [answer("c"), answer("a")]


def test_what_one_examiner_lost_the_other_keeps(two, clock):
    prepare(two, 0, "a")
    put(two, answer("a"))
    clock.now += LONG_S + 0.01
    take(two, 1)
    two.forget(0)
    put(two, answer("a"), answer("unknown"))
    assert take(two, 0) == answer("unknown") and take(two, 1) == answer("a")


def test_take_waits_for_a_job_that_may_be_taken(two):
    prepare(two, 0, "a")
    taking = Taking(two, 1)
    assert taking.waits()
    two.put(answer("a"))
    assert taking.waits(), "that one is for the other examiner"
    two.put(new("b"))
    assert taking.result() == new("b")


def test_closing_ends_all_waiting_and_drops_what_is_left(two):
    prepare(two, 0, "a")
    two.put(answer("a"))
    waiting_for_more = Taking(two, 1)
    assert waiting_for_more.waits()
    two.close()
    assert waiting_for_more.result() is None and take(two, 0) is None
    two.put(new("b"))
    assert take(two, 0) is None


def test_submissions_do_not_wait_for_an_examiner_that_is_long_at_another_job(two, clock):
    put(two, new("quick"), new("dear"))
    assert two.take(0).task.id == "quick" and two.take(0).task.id == "dear"
    put(two, answer("quick"))
    other = Taking(two, 1)
    assert other.waits(), "the examiner that has prepared the task may be done soon"
    clock.now += STUCK_S + 0.1
    put(two, new("another"))
    assert other.result() == answer("quick")
