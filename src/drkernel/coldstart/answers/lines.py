"""Answers written from the canonical form of a task alone: its lines become kernels, as they stand.

    t2 = self.m1(t1)                        't3 = t2 + in0; t4 = F.relu(t3); t5 = F.softmax(t4, dim=1)'
    t3 = t2 + in0                           def kernel1(t2_ptr, in0_ptr, o_ptr, N, BLOCK):
    t4 = F.relu(t3)                             ...
    t5 = F.softmax(t4, dim=1)     ->            t3 = t2 + in0
    t6 = self.m2(t5)                            t4 = tl.maximum(t3, 0.0)
    return t6                                   ...
                                            def f1(t2, in0): ...
                                            def forward(self, in0):
                                                t5 = f1(t2, in0)
                                                return t6

They are what a small policy can write for a network of many layers, whoever wrote it. Before each kernel they say its
lines, from which its arguments follow.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from drkernel.coldstart.answers.attention_lines import Attention, attentions
from drkernel.coldstart.answers.fusion import Group, groups
from drkernel.coldstart.answers.known import Known
from drkernel.coldstart.answers.tile_text import Tiles
from drkernel.policy.canonical import Canonical, canonical
from drkernel.policy.canonical.told import Line, Told, names_in
from drkernel.types import Task

MOST_KERNELS = 3
LEAST_SAVED = 0.05
"""A kernel is written where it saves at least this share of what the best one saves."""


def by_lines(task: Task) -> str | None:
    """A submission of this kind, the same at each call; None where the task has no lines that a kernel can compute."""
    form = canonical(task.source, task.entry_point)
    told = form.told
    order = {name: place for place, line in enumerate(told.lines) for name in line.makes}
    known, lines = Known.of(told), [*map(_with_function, told.lines)]
    found: list[Group | Tiles | Attention] = [*groups(lines, known)]
    found = found or [*groups(lines, known, at_any_cost=True)] or [*attentions(lines, known)]
    every = sorted(found, key=lambda group: order[group.makes])
    saved = Counter[str]()
    first: dict[str, Group | Tiles | Attention] = {}
    for group in every:
        saved[group.kernel] += group.saved
        first.setdefault(group.kernel, group)
    sayable = {kernel for kernel, group in first.items() if order[group.makes] < told.shown}
    if not sayable:
        return None
    best = max(saved[kernel] for kernel in sayable)
    likely = [(kernel, value) for kernel, value in saved.most_common() if kernel in sayable]
    chosen = [kernel for kernel, value in likely[:MOST_KERNELS] if value >= LEAST_SAVED * best]
    numbers = {kernel: number for number, kernel in enumerate((k for k in first if k in chosen), 1)}
    calls = {g.makes: g.call(numbers[g.kernel]) for g in every if g.kernel in numbers}
    kernels = [f"{_plan(told, first[kernel].made)}\n{first[kernel].text(number)}" for kernel, number in numbers.items()]
    return _submission(form, kernels, calls, task.submission_name)


def _with_function(line: Line) -> Line:
    """The line with the function that it is told as, where it calls a module without tensors at all sizes."""
    if not re.search(r"\bself\.u\d+\(", line.text):
        return line
    code = line.told.partition("  #")[0]
    return Line(line.makes, frozenset(names_in(ast.parse(code), ast.Load)), code, line.told)


def _plan(told: Told, made: Sequence[str]) -> str:
    """The lines that make these values, as a statement."""
    return repr("; ".join(told.makers[name].told.partition("  #")[0] for name in made))


def _submission(form: Canonical, kernels: Sequence[str], calls: Mapping[str, str], name: str) -> str:
    """The submission with these calls, and those of later lines that are alike.

    Where another kernel computes such a line, or none, that is said, if it is a line that a policy reads.

    Args:
        calls: by what they make.
    """
    lines = {made: line.text for line in form.told.lines[: form.told.shown] for made in line.makes}
    said: dict[str, str] = {}
    while True:
        source = _with_lines(form, kernels, [said[v] for v in lines if v in said], name)
        made = _made_by(source)
        by_another = [v for v in lines if v in made and not calls.get(v, "").startswith(f"{v} = {made[v]}(")]
        missing = [v for v in lines if v in calls.keys() - made.keys()]
        if not by_another and not missing:
            break
        said |= {v: calls.get(v, lines[v]) for v in by_another or missing[:1]}
    for value in [v for v in said if v not in calls]:  # later calls may have made it superfluous
        shorter = _with_lines(form, kernels, [said[v] for v in lines if v in said and v != value], name)
        if _made_by(shorter) == made:
            source = shorter
            del said[value]
    return source


def _with_lines(form: Canonical, kernels: Sequence[str], lines: Sequence[str], name: str) -> str:
    """The submission whose `forward` says these lines."""
    head, *_, last = form.text.splitlines()
    answer = "\n".join([head.partition("  #")[0], *(f"    {line}" for line in lines), last, ""])
    return form.whole("".join([*kernels, answer]), name) or ""


def _made_by(source: str) -> dict[str, str]:
    """Which of the kernels' functions makes what."""
    return dict(re.findall(r"^ +(t\d+) = (f\d+)\(", source, re.MULTILINE))
