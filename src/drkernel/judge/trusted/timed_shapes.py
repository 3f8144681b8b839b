"""Other shapes of a task that are timed beside the published one: of comparable work, and drawn in secret.

A kernel that is tuned to one shape, or that looks its speed up in a table of shapes, is not faster elsewhere. So sizes
change by factors that nobody can foresee: one of them, all of them, or one for another (twice the rows, half the
columns). In turn the new sizes are even, as published ones are, and odd. The same judge times all submissions to a task
at the same shapes, so that their speed-ups can be compared.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.trusted import prepare
from drkernel.judge.trusted.attribution import CostModel, ReferenceCost
from drkernel.judge.trusted.cases import domain
from drkernel.judge.trusted.cases.cases import Seeds
from drkernel.judge.trusted.least_work import LeastWork, least_work
from drkernel.judge.trusted.outputs import leaves
from drkernel.judge.trusted.prepare import PreparedTask
from drkernel.judge.trusted.sizes import lift, shrink
from drkernel.judge.trusted.sizes.footprint import Footprint, of
from drkernel.judge.trusted.sizes.same_calls import are_same
from drkernel.judge.trusted.sizes.without_data import DRY_RUNS
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

P = TypeVar("P", bound=PreparedTask)
MOST = 4
"""Shapes that are timed at most, the published one included: a GPU is held alone for each."""
LEAST_WORK, MOST_WORK = 0.5, 1.5
"""The bytes, and the operations, of another shape over those of the published one."""
LEAST_TIME, MOST_TIME = 0.4, 2.0
"""The modelled time of the reference there over that at the published shape."""
_FACTORS = (5 / 8, 3 / 4, 7 / 8, 9 / 8, 5 / 4, 3 / 2)
_SHIFTS = ((2, 1 / 2), (3 / 2, 2 / 3), (1 / 2, 2), (2 / 3, 3 / 2))
_MULTIPLES = ((256, 64), (64, 16), (16, 4), (8, 2))
"""Even sizes from the first number on are multiples of the second."""
_SMALLEST = 4
"""A smaller size stays as it is."""
_TRIES = 24
"""Sets of sizes that are drawn for one shape."""
_CHUNK = 2**28
"""Elements that are looked at together."""


@dataclass(frozen=True)
class Sizes:
    """One shape by the constants that differ from the published ones."""

    full: dict[str, int]
    """At the sizes that count."""
    run: dict[str, int]
    """All constants at the sizes at which the device runs it."""


def prepared_elsewhere(
    prepared: PreparedTask,
    base: Reference,
    published: Reference,
    secret: bytes,
    shapes: int,
    cost_model: Callable[[Sizes], CostModel],
    record: Callable[[], AbstractContextManager[OpTrace]],
    admits: Callable[[Footprint], bool] = lambda footprint: True,
    measured: Callable[[PreparedTask], P] = lambda prepared: prepared,  # type: ignore[assignment, return-value]
    alone: bool = True,
) -> tuple[list[P], list[dict[str, Any]]]:
    """The task at other shapes that are timed, and those that are dropped, with the reason.

    There are `shapes` of them together, or as many as the task has. A shape is dropped where memory gives out at it.

    Args:
        prepared: the task at the shape that is published, at the sizes at which the device runs it.
        base: at sizes at which it costs little to find out what the constants do.
        published: at the sizes that count.
        cost_model: of the device, for a shape.
        record: counts the operators of a block.
        admits: whether there is room for a shape.
        measured: what a device adds to the task at a shape.
        alone: whether nobody else holds memory of the device. What others hold must not decide which shapes are timed.

    Raises:
        torch.OutOfMemoryError, DrKernelError with this as its cause: memory gives out, and others hold some, too.
    """
    seeds = Seeds(secret, prepared.task.digest, "timed shapes")
    networks = lift.network_sizes(prepared.task.source)
    names = prepare.names_that_size_inputs(prepared.task, base, seeds("names"))
    names = [name for name in names if name not in networks and published.constants[name] >= _SMALLEST]
    found = _Found(prepared, published, seeds("inputs"), admits)
    draw = random.Random(seeds("sizes"))
    odd_first = draw.random() < 1 / 2

    def at(sizes: Sizes) -> P | None:
        reference = found.usable(sizes)
        if reference is None:
            return None
        full = Reference(prepared.task, published.constants | sizes.full)
        given = cost_model(sizes), record, full
        before = prepared.reference_costs
        costs = {train: prepare.reference_cost(reference, seeds("cost"), train, *given) for train in before}
        if not all(_takes_as_long(costs[train], before[train]) for train in costs):
            return None
        return measured(dataclasses.replace(prepared, reference=reference, reference_costs=costs, sizes=sizes.full))

    timed: list[P] = []
    dropped: list[dict[str, Any]] = []
    for number in range(shapes if names else 0):
        odd = (number % 2 == 0) == odd_first
        for attempt in range(_TRIES):
            sizes = _drawn(
                draw, published.constants, prepared.reference.constants, names, odd ^ (attempt >= _TRIES // 2)
            )
            try:
                other = at(sizes)
            except (torch.OutOfMemoryError, DrKernelError) as error:
                if not alone or not _out_of_memory(error):
                    raise
                dropped.append({"sizes": sizes.full, "why": "the reference runs out of memory there"})
                break
            if other is not None:
                timed.append(other)
                break
    return timed, dropped


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error.__cause__ or error, torch.OutOfMemoryError)


def input_shapes(task: Task, constants: Mapping[str, int]) -> list[list[int]] | None:
    """The shapes of a task's inputs at some sizes; None where they cannot be told without data."""
    for dry in DRY_RUNS:
        try:
            with dry():
                return [list(shape) for shape in shrink.shapes_of(Reference(task, constants).inputs(0))]
        except DrKernelError:
            continue
    return None


class _Found:
    """Which sizes can be timed. Knows those that were found, so that no shape comes twice."""

    def __init__(self, prepared: PreparedTask, published: Reference, seed: int, admits: Callable[[Footprint], bool]):
        self._task, self._published, self._seed, self._admits = prepared.task, published, seed, admits
        self._train = prepared.mode_alternatives[0][0]
        self._work = least_work(published, self._train)
        inputs = prepared.reference.inputs(seed)
        self._known, self._elements = {shrink.shapes_of(inputs)}, _elements(inputs)
        self._masked = prepared.masked

    def usable(self, sizes: Sizes) -> Reference | None:
        """The reference at sizes that are of comparable work, for which there is room, and at which it makes the same
        calls and stays finite; None for others."""
        try:
            full = Reference(self._task, self._published.constants | sizes.full)
            if self._work is not None and not _comparable(self._work, least_work(full, self._train)):
                return None
            if not self._admits(of(full)) or not are_same(full):
                return None
            reference = Reference(self._task, sizes.run)
            inputs = reference.inputs(self._seed)
            shapes, share = shrink.shapes_of(inputs), _elements(inputs) / self._elements
            if shapes in self._known or (self._work is None and not LEAST_WORK <= share <= MOST_WORK):
                return None
            outputs = domain.forward(reference, reference.model(self._seed).train(self._train), inputs)
            if not _finite(outputs, self._masked):
                return None
        except DrKernelError as error:
            if _out_of_memory(error):
                raise
            return None
        self._known.add(shapes)
        return reference


def _drawn(draw: random.Random, full: Mapping[str, int], run: Mapping[str, int], names: list[str], odd: bool) -> Sizes:
    """Other sizes: of one constant, of all, or of two that change against each other."""
    kind = draw.choice(("one", "all", "shift") if len(names) > 1 else ("one",))
    if kind == "shift":
        factors = dict(zip(draw.sample(names, 2), draw.choice(_SHIFTS), strict=True))
    else:
        factors = {name: draw.choice(_FACTORS) for name in (names if kind == "all" else [draw.choice(names)])}
    changed = {name: _resized(full[name], factor, odd) for name, factor in factors.items()}
    changed = {name: value for name, value in changed.items() if value != full[name]}
    small = {name: _alike(run[name], value / full[name], value % 2) for name, value in changed.items()}
    return Sizes(
        changed, dict(run) | {name: changed[name] if run[name] == full[name] else small[name] for name in small}
    )


def _resized(size: int, factor: float, odd: bool) -> int:
    """A size changed by about a factor.

    >>> [_resized(size, 3 / 4, odd) for size, odd in ((4096, False), (1000, False), (4096, True), (6, False))]
    [3072, 768, 3071, 4]
    """
    wanted = round(size * factor)
    if odd:
        return wanted - 1 if wanted % 2 == 0 else wanted
    multiple = next((multiple for least, multiple in _MULTIPLES if wanted >= least), 1)
    return max(multiple, round(wanted / multiple) * multiple)


def _alike(size: int, factor: float, odd: int) -> int:
    """A small size that changes as the full one does: by the same factor, to an odd size or an even one.

    >>> _alike(32, 3 / 4, 0), _alike(32, 3071 / 4096, 1), _alike(4, 5 / 8, 0)
    (24, 23, 2)
    """
    wanted = max(2, round(size * factor))
    return wanted if wanted % 2 == odd else wanted - 1 if wanted > 2 else wanted + 1


def _comparable(work: LeastWork, other: LeastWork | None) -> bool:
    if other is None:
        return False
    pairs = ((work.bytes, other.bytes), (work.operations, other.operations))
    return all(LEAST_WORK * here <= there <= MOST_WORK * here for here, there in pairs)


def _takes_as_long(cost: ReferenceCost, published: ReferenceCost) -> bool:
    here, there = (sum(row.microseconds for row in each.profile()) for each in (published, cost))
    return LEAST_TIME * here <= there <= MOST_TIME * here


def _elements(inputs: list) -> int:
    return sum(t.numel() for _, t in leaves(inputs) if isinstance(t, Tensor)) or 1


def _finite(outputs: Any, infinities: bool) -> bool:
    """As shrink.finite, some of large outputs at a time."""
    tensors = (t for _, t in leaves(outputs) if isinstance(t, Tensor))
    return all(shrink.finite(part, infinities) for t in tensors for part in t.reshape(-1).split(_CHUNK))
