"""A second record of ATen's operators, to which a recorder is held: PyTorch's own profiler writes it, in C++.

A recorder is Python code in the process of a submission. Modes can be taken off their stack, and objects may be
destroyed, and compute, while the recorder's own code runs. The profiler sees each operator all the same. Whatever it
saw must have been executed by a recorder, or within an operator that a recorder executed. A recorder says beforehand
which one it executes: while it calls it, Python code of others may run, and compute something else.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C import _dispatch_has_kernel_for_dispatch_key as _has_kernel
from torch._C import _get_schema as _schema
from torch._C._autograd import _disable_profiler_legacy, _enable_profiler_legacy
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig, _RecordFunctionFast

from drkernel.judge.boundary.custom_operators import own_namespaces

_MARK = f"recorded:{os.urandom(16).hex()}"
"""How the name of a range starts in which one operator is executed that is recorded, or is the judge's own; the
operator's name follows. It is a secret."""
_NATIVE = ("aten::fbgemm_", "aten::choose_qparams_", "aten::_saturate_weight_", "aten::_sobol_engine_")
"""Operators that are made of others, and compute by themselves besides, on a CPU alone."""
_EITHER = frozenset({"aten::max_pool1d"})
"""Operators that are made of others where a recorder is on, and compute by themselves where none is."""
_OF_OTHERS = "CompositeImplicitAutograd"
"""The dispatch key of what is made of other operators."""
_FREE = frozenset({"aten::empty", "aten::empty_strided", "aten::resize_", "aten::set_", "aten::detach_"})
"""Others that move no data."""
_READ = "aten::_local_scalar_dense"
"""The operator that reads a number of a tensor."""


class UnseenOperator(RuntimeError):
    """An operator ran that no recorder has seen."""


def executing(operator: str) -> Any:
    """A block that calls one operator (`aten::sort`), which is recorded or is the judge's own work."""
    return _RecordFunctionFast(_MARK + operator)


@dataclass
class _Range:
    """One that the profiler has seen begin."""

    name: str
    covered: bool
    """Whether an operator that was executed in a mark contains it."""
    marks: set[str] = field(default_factory=set)
    """The operators of the marks that it contains."""
    parts: int = 0
    """Ranges directly within it."""


@contextlib.contextmanager
def watched(note_reads: Callable[[int], object]) -> Iterator[None]:
    """A block in which each operator must be executed in a mark.

    Args:
        note_reads: told how many numbers were read without a mark, where that are some: torch.tensor([x[0], x[1]])
            does so.

    Raises:
        UnseenOperator: at its end, where one was not.
    """
    _enable_profiler_legacy(ProfilerConfig(ProfilerState.CPU, False, False, False, False, False, _ExperimentalConfig()))
    try:
        yield
    finally:
        events = _disable_profiler_legacy()
    unseen = Counter(name for thread in events for name in _unseen(thread))
    if reads := unseen.pop(_READ, 0):
        note_reads(reads)
    if unseen:
        raise UnseenOperator(f"computed by PyTorch where it is not recorded: {', '.join(sorted(unseen))[:200]}")


def _unseen(events: list[Any]) -> Iterator[str]:
    """The operators that were executed outside of marks."""
    ranges = [_Range("", False)]
    for event in events:
        kind = event.kind()
        if kind == "push":
            outer, name = ranges[-1], event.name()
            outer.parts += 1
            executed = outer.name == _MARK + name and outer.parts == 1 and _is_of_pytorch(name)
            poisons = name == "aten::fill_" and outer.name in _FREE
            ranges.append(_Range(name, outer.covered or executed or poisons))
        elif kind == "pop" and len(ranges) > 1:
            ended = ranges.pop()
            ranges[-1].marks |= ended.marks
            if ended.name.startswith(_MARK):
                ranges[-1].marks.add(ended.name.removeprefix(_MARK))
            seen = ended.covered or ended.name in ended.marks or (ended.marks and _may_consist_of_others(ended.name))
            if _is_of_pytorch(ended.name) and not seen and not _is_free(ended.name):
                yield ended.name


def _is_of_pytorch(name: str) -> bool:
    return name.partition("::")[0] in own_namespaces() - {"profiler"}


@functools.cache
def _is_free(name: str) -> bool:
    """Whether an operator computes nothing where it calls no other: it is made of others, or a view."""
    if name in _FREE or name in _EITHER or name.startswith(_NATIVE):
        return name in _FREE
    return all(
        _has_kernel(full, _OF_OTHERS) or is_view(_schema(*full.partition(".")[::2]))
        for full in _overloads().get(name, ())
    )


@functools.cache
def _may_consist_of_others(name: str) -> bool:
    """Whether an operator has an overload that is made of others."""
    return not name.startswith(_NATIVE) and any(_has_kernel(full, _OF_OTHERS) for full in _overloads().get(name, ()))


@functools.cache
def _overloads() -> dict[str, list[str]]:
    """The overloads of each operator."""
    found: dict[str, list[str]] = {}
    for full in torch._C._dispatch_get_all_op_names():
        found.setdefault(full.partition(".")[0], []).append(full)
    return found


def is_view(schema: Any) -> bool:
    """Whether an operator with this schema only gives its argument another form."""
    aliases = [argument.alias_info for argument in schema.arguments if argument.alias_info is not None]
    return bool(aliases) and not any(alias.is_write for alias in aliases)
