"""Is what was examined what is timed? By what the device executes: for examined calls, and for those that are timed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable

from drkernel.judge.boundary.cuda.activity import DeviceWork
from drkernel.judge.devices.base import Submission
from drkernel.judge.devices.cuda.single_calls import SingleCall
from drkernel.judge.trusted.verdicts import VerdictReached

_OF_COPIES, _ADDED_SHARE = re.compile("copy|Fill|memset", re.IGNORECASE), 0.1
"""Kernels by which a runner copies outputs, and the proportion of a call that unknown kernels may take."""
_LESS_WORK = 0.7
"""A timed call's kernels may take this proportion of what they took when they were examined, in one of two
processes."""
_UNEXPLAINED_US, _UNEXPLAINED_SHARE = 10.0, 0.05
"""What need not be explained, and as a share of the time of the submission's own kernels."""


def names(work: list[DeviceWork], own: Collection[str]) -> frozenset[str]:
    """The names of the kernels that a runner does not run for itself: those by which it copies and fills have none."""
    return frozenset(one.kernel for one in work if one.kernel in own or not _OF_COPIES.search(one.kernel or "copy"))


def expect_same(submission: Submission, examined: list[DeviceWork], calls: list[SingleCall]) -> None:
    """What was examined is what is timed: the same programs of the submission's own, and no other kernels."""
    own = submission.client.activity.own
    expected, known = {work.program for work in examined if work.kernel in own}, {work.kernel for work in examined}
    for call in calls:
        found = {work.program for work in call.work if work.kernel in own}
        kernels = [work for work in call.work if work.kernel and not _OF_COPIES.search(work.kernel)]
        added = [work for work in kernels if work.kernel not in known | own]
        problem = ""
        if left := {name for name, *_ in expected - found}:
            problem = f"leaves out {', '.join(sorted(left))}"
        elif other := {name for name, *_ in found - expected}:
            problem = f"runs another program of {', '.join(sorted(other))}"
        elif sum(work.us for work in added) > _ADDED_SHARE * sum(work.us for work in call.work):
            problem = f"adds {max(added, key=lambda work: work.us).kernel[:60]}"
        if problem:
            submission.refuse("differs_when_timed", f"when it is timed, forward {problem}")


def of_right_call(submission: Submission) -> tuple[list[DeviceWork], Callable[[], None]]:
    """What the device executes for a call like those that were examined, and what is to be called once nothing is timed
    any more: it expects that the outputs are right. The call comes after calls as they are timed, so that who idles
    from some call on idles in this one, too.

    Raises:
        VerdictReached: they are not, here for a large call, whose outputs lie in the shared memory.
    """
    case = submission.case
    reply, work = submission.client.watched(case)

    def expect_right() -> None:
        if problem := case.check(reply.outputs):
            detail = f"{problem.text} (case: once more, among timed calls)"
            raise VerdictReached("incorrect", problem.reason, detail, case="timed calls")

    if not case.large:
        return work, expect_right
    expect_right()
    return work, lambda: None


def less(submission: Submission, examined: Iterable[list[DeviceWork]], calls: list[SingleCall]) -> str:
    """How much less the submission's own kernels work when they are timed than when they are examined, if they do."""
    own_us = lambda work: submission.client.activity.split_us(work)[0]
    examined_us = max(map(own_us, examined))
    timed_us = min((own_us(call.work) for call in calls), default=math.inf)
    if timed_us >= _LESS_WORK * examined_us - _UNEXPLAINED_US:
        return ""
    return f"when it is timed, forward works for {timed_us:.3g} us in its kernels, not {examined_us:.3g} us"


def expect_explained(submission: Submission, work: list[DeviceWork], most_us: float, spanned_us: float) -> None:
    """Kernels that are not the submission's own are those of recorded operators: they take no longer than these may,
    and they run while these do. Libraries run some of them side by side, so time in which several run counts once."""
    activity = submission.client.activity
    own_us, other_us, _ = activity.split_us(work)
    free_us = _UNEXPLAINED_US + _UNEXPLAINED_SHARE * own_us
    if other_us > most_us + free_us or activity.busy_with_others_us(work) > spanned_us + free_us:
        kernels = [one for one in work if one.kernel and one.kernel not in activity.own]
        longest = max(kernels, key=lambda one: one.us).kernel[:60]
        detail = f"the GPU spends {other_us:.0f} us on kernels that no recorded operator explains, such as {longest}"
        submission.refuse("hidden_work", detail)
