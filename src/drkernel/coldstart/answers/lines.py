"""Answers written from the canonical form of a task alone: its lines become kernels, as they stand.

    t2 = self.m1(t1)                        def kernel1(t2_ptr, in0_ptr, o_ptr, N, BLOCK):
    t3 = t2 + in0                               ...
    t4 = F.relu(t3)                             t3 = t2 + in0
    t5 = F.softmax(t4, dim=1)     ->            t4 = tl.maximum(t3, 0.0)
    t6 = self.m2(t5)                            ...
    return t6                               def f1(t2, in0): ...
                                            def forward(self, in0):
                                                t5 = f1(t2, in0)
                                                return t6

They are what a small policy can write for a network of many layers, whoever wrote it.
"""

from __future__ import annotations

from collections import Counter

from drkernel.coldstart.answers.fusion import Group, groups
from drkernel.coldstart.answers.known import Known
from drkernel.policy.canonical import canonical
from drkernel.types import Task

MOST_KERNELS = 3
LEAST_SAVED = 0.15
"""A kernel is written where it saves at least this share of what the best one saves."""


def by_lines(task: Task) -> str | None:
    """A submission of this kind, the same at each call; None where the task has no lines that a kernel can compute."""
    form = canonical(task.source, task.entry_point)
    order = {name: place for place, line in enumerate(form.lines) for name in line.makes}
    every = sorted(groups(form.lines, Known.of(form)), key=lambda group: order[group.makes])
    if not every:
        return None
    saved = Counter[str]()
    first: dict[str, Group] = {}
    for group in every:
        saved[group.kernel] += group.saved
        first.setdefault(group.kernel, group)
    best = max(saved.values())
    chosen = [kernel for kernel, value in saved.most_common(MOST_KERNELS) if value >= LEAST_SAVED * best]
    numbers = {kernel: number for number, kernel in enumerate((k for k in first if k in chosen), 1)}
    head, *_, last = form.text.splitlines()
    answer = [first[kernel].text(number) for kernel, number in numbers.items()] + [f"{head.partition('  #')[0]}\n"]
    answer += [f"    {group.call(numbers[group.kernel])}\n" for group in every if group.kernel in numbers]
    return form.submission("".join([*answer, last, "\n"]), task.answer_name)
