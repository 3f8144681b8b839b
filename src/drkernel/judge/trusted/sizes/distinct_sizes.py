"""Sizes that differ in the published task differ where a submission is checked.

A kernel that takes one size for another (the columns of a matrix for its rows) is right wherever the two are equal.
Halving brings sizes of one magnitude to one value. So those that fell together are moved apart, by further halvings or
by fewer, which keeps the divisibility that halvings keep; and hidden shapes part what cannot be moved.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from drkernel.judge.trusted.outputs import leaves
from drkernel.judge.trusted.sizes.size_cost import LEAST_GROUP, Cost, cost_of, planned_cost
from drkernel.judge.trusted.sizes.without_data import without_data
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

Sizes = Mapping[Any, int]
"""Sizes of a task by what they are the size of."""
_CAPS = tuple(2**power for power in range(1, 15))
_STEPS, _FEWER, _LESS = (0, -1, 1, -2, 2), (0, -1, 1, 2), (0, -1)
"""By how many halvings sizes are moved that fell together; the same where they are more than _MANY; and of other sizes,
which make cheap what the first grow by."""
_MANY, _MOST_MOVED = 4, 6
"""All ways to move this many sizes together are looked at."""
_TRIES = 40
"""Of these, how many are tried on the task."""
_ROUNDS = 3
"""How often sizes are moved further from the best that was found."""
_LARGE = 150
"""A task of so many sizes, a network, is tried less often: that takes long."""
_MORE = 2
"""How much dearer weights and products may become. (Values, which take the interpreter longest, may not.)"""
_NARROW, _TINY = 16, 4
"""Rows keep so many elements rather (kernels with tl.dot need them). No size becomes smaller than the second number,
which hidden shapes could not vary."""
_MOVABLE = 8
"""Smaller constants that stayed as they are in the small task are taken for something else than sizes."""


def halved(value: int, cap: int) -> int:
    """The largest value / 2^k that is at most cap; an odd value beyond it becomes the cap itself."""
    while value > cap:
        value = value // 2 if value % 2 == 0 else cap
    return value


def at_sizes(task: Task, constants: Mapping[str, int]) -> Task:
    """The task with `small` set to the constants that are not as published."""
    full = Reference(task).constants
    return dataclasses.replace(task, small={name: value for name, value in constants.items() if value != full[name]})


def sizes_of(reference: Reference, weights: bool = True) -> dict[Any, int]:
    """The constants of a task, and the dimensions of its inputs and weights, as far as they are told without data."""
    found: dict[Any, int] = dict(reference.constants)
    with contextlib.suppress(DrKernelError), without_data():
        inputs = [tensor for _, tensor in leaves(reference.inputs(0)) if isinstance(tensor, Tensor)]
        found |= _dimensions(enumerate(inputs))
        if weights:
            model = reference.model(0)
            found |= _dimensions(itertools.chain(model.named_parameters(), model.named_buffers()))
    return found


def _dimensions(tensors: Iterable[tuple[Any, Tensor]]) -> dict[Any, int]:
    return {(name, d): size for name, tensor in tensors for d, size in enumerate(tensor.shape)}


def _is_of_input(key: Any) -> bool:
    return isinstance(key, tuple) and isinstance(key[0], int)


def fallen_together(published: Sizes, *others: Sizes) -> list[set[int]]:
    """The published sizes that no other set of sizes parts.

    >>> fallen_together({"N": 3328, "C": 1664, "K": 8}, {"N": 104, "C": 104, "K": 8})
    [{3328, 1664}]
    >>> fallen_together({"N": 3328, "C": 1664}, {"N": 104, "C": 104}, {"N": 105, "C": 107})
    []
    """
    return [{published[key] for key in keys} for keys in _fallen_together(published, *others)]


def _fallen_together(published: Sizes, *others: Sizes) -> list[list[Any]]:
    together: dict[tuple[int, ...], list[Any]] = defaultdict(list)
    for key in published:
        if all(key in other for other in others):
            together[tuple(other[key] for other in others)].append(key)
    return [keys for keys in together.values() if len({published[key] for key in keys}) > 1]


def number_together(published: Sizes, *others: Sizes) -> int:
    """How many published sizes are not told from another one."""
    return sum(len(sizes) - 1 for sizes in fallen_together(published, *others))


def most_telling(
    candidates: Iterator[Reference], number: int, published: Reference, base: Reference
) -> list[Reference]:
    """The first candidates; other ones where sizes of inputs that `base` does not tell from others differ in these."""
    full, small = sizes_of(published), sizes_of(base)
    found: list[tuple[Reference, Sizes]] = []
    best: list[Reference] = []
    least = _inputs_together(full, small)
    if not least:
        return list(itertools.islice(candidates, number))
    for candidate in candidates:
        found.append((candidate, small | sizes_of(candidate, weights=False)))
        for chosen in itertools.combinations(found, min(number, len(found))):
            together = _inputs_together(full, small, *(sizes for _, sizes in chosen))
            if together < least or len(chosen) > len(best):
                best, least = [reference for reference, _ in chosen], min(together, least)
        if len(best) == number and not least:
            break
    return best


def _inputs_together(published: Sizes, *others: Sizes) -> int:
    """As number_together, of the sizes among which is one of an input."""
    keys = (keys for keys in _fallen_together(published, *others) if any(map(_is_of_input, keys)))
    return sum(len({published[key] for key in group}) - 1 for group in keys)


def parted(task: Task, target: Cost) -> Task:
    """The task at small sizes that are apart as the published ones are, as far as such sizes run and are cheap.

    Rather than that, its calls are those at the published sizes.

    Args:
        task: with `small` set.
        target: what is cheap. Where the task is dearer, so may it stay.
    """
    published, small = sizes_of(Reference(task)), sizes_of(Reference(task, task.small))
    before = _cost(task, task.small or {}, target)
    least = before.undefined, number_together(published, small)
    limit = Cost(
        max(before.values, target.values),
        _MORE * max(before.weights, target.weights),
        _MORE * max(before.flops, target.flops),
    )
    best, tries = task, _TRIES if len(published) < _LARGE else _TRIES // 8
    for _ in range(_ROUNDS if any(least) else 0):
        start, sizes = best, sizes_of(Reference(best, best.small))
        for constants in _moved(Reference(task).constants, published, sizes, tries):
            other = dataclasses.replace(task, small=constants)
            with contextlib.suppress(DrKernelError):
                together = number_together(published, sizes_of(Reference(other, constants)))
                if (False, together) >= least or not (cost := _fitting(other, target, limit, before)):
                    continue
                if (found := (cost.undefined, together)) < least:
                    best, least = other, found
            if not any(least):
                return best
        if best is start:
            break
    return best


def _fitting(task: Task, target: Cost, limit: Cost, before: Cost) -> Cost | None:
    """The cost of a task that runs at its small sizes, is cheap, and is not less defined than before; else None."""
    cost = _cost(task, task.small or {}, target)
    sound = cost.undefined <= before.undefined and cost.group >= min(LEAST_GROUP, before.group)
    return cost if sound and not cost.exceeds(limit) else None


def _cost(task: Task, small: Mapping[str, int], target: Cost) -> Cost:
    """The cost, of what is cheap with data: only these tell what is undefined."""
    planned = planned_cost(task, small)
    return planned if planned is not None and planned.exceeds(target) else cost_of(Reference(task, small))


def _moved(full: Mapping[str, int], published: Sizes, small: Sizes, tries: int) -> Iterator[dict[str, int]]:
    """Small constants with those that fell together moved apart: all at once, in the `tries` ways that tell most, then
    each alone. Those that change least come first.

    Constants that are equal both in the published task and in the small one move together: they may have to be equal.
    """
    pairs = {(published[key], small[key]) for key in published if key in small}
    values = Counter(value for _, value in pairs)
    kinds = sorted({(full[name], small[name]) for name in full if small[name] != full[name] or full[name] >= _MOVABLE})
    kinds = sorted(kinds, key=lambda kind: -values[kind[1]])[:_MOST_MOVED]
    if not any(values[value] > 1 for _, value in kinds):
        return  # they follow from constants that are apart
    steps = _STEPS if len(kinds) <= _MANY else _FEWER
    options = [list(_steps(*kind, steps if values[kind[1]] > 1 else _LESS)) for kind in kinds]
    ranked = sorted(_ranked(kinds, options, sorted(pairs.difference(kinds))))
    alone = (new for *_, new in ranked if sum(value != kind[1] for value, kind in zip(new, kinds, strict=True)) == 1)
    for new in itertools.chain((new for *_, new in ranked[:tries]), alone):
        value_of = dict(zip(kinds, new, strict=True))
        constants = {name: value_of.get((full[name], small[name]), small[name]) for name in full}
        yield {name: value for name, value in constants.items() if value != full[name]}


def _ranked(
    kinds: list[tuple[int, int]], options: list[list[tuple[int, int]]], rest: list[tuple[int, int]]
) -> Iterator[tuple[int, int, int, int, list[int]]]:
    """All choices of options: how many sizes are together then, how unwanted it is, how many are in another order than
    the published ones, its number, and the value for each kind.

    Rather as much data is kept: of a small task that becomes smaller, a kernel's block may hold all.
    """
    for number, choice in enumerate(itertools.product(*options)):
        new = [value for value, _ in choice]
        pairs = [*rest, *((size, value) for (size, _), value in zip(kinds, new, strict=True))]
        groups: dict[int, set[int]] = defaultdict(set)
        for size, value in pairs:
            groups[value].add(size)
        together = sum(len(sizes) - 1 for sizes in groups.values())
        narrow = sum(value < _NARROW <= small for (_, small), value in zip(kinds, new, strict=True))
        steps = [step for _, step in choice]
        unwanted = sum(map(abs, steps)) + 3 * narrow + 2 * max(0, -sum(steps))
        inversions = sum((a - c) * (b - d) < 0 for (a, b), (c, d) in itertools.combinations(pairs[len(rest) :], 2))
        yield together, unwanted, inversions, number, new


def _steps(full: int, small: int, steps: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Values for a size that was made small, and by how many steps it is moved to them."""
    values = sorted({halved(full, cap) for cap in _CAPS} | {small})
    at = values.index(small)
    for step in steps:
        if 0 <= at + step < len(values) and (step >= 0 or values[at + step] >= _TINY):
            yield values[at + step], step
