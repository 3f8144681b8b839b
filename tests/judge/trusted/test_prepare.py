"""Prepared tasks are kept, as many as there is room for; an unusable one is not prepared again."""

from __future__ import annotations

import pytest

from drkernel.judge.trusted.prepare import PreparedTaskCache
from drkernel.types import DrKernelError, Task


def prepared(cache: PreparedTaskCache, *names: str) -> list[str]:
    """Which of the tasks were prepared when they were asked for in turn."""
    done: list[str] = []
    for name in names:
        assert cache.get(Task(name, name), lambda: done.append(name) or [name]) == [name]  # noqa: B023
    return done


def test_a_task_is_prepared_once_and_the_one_that_was_asked_for_longest_ago_makes_room():
    cache = PreparedTaskCache(2)
    assert prepared(cache, "a", "b", "a", "b") == ["a", "b"]
    assert prepared(cache, "a", "c", "a") == ["c"]
    assert Task("a", "a") in cache and Task("b", "b") not in cache


def test_what_is_wrong_with_a_task_is_said_again_without_another_try():
    cache, tried, said = PreparedTaskCache(2), [], []

    def fail():
        tried.append(1)
        raise DrKernelError("task a: its reference fails")

    for _ in range(2):
        with pytest.raises(DrKernelError, match=r"^task a: its reference fails$") as caught:
            cache.get(Task("a", "a"), fail)
        said.append(caught.value)
    assert len(tried) == 1 and said[0] is not said[1], "the error is kept, and all that its traceback holds"
