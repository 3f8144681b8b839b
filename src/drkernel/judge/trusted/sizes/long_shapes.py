"""A task with one long size, the others small: what a kernel does beyond its first block.

At small sizes many a loop over blocks goes round once, and a block of a fixed size covers a row that it does not cover
at the published size. So each size that inputs have is once as long as in the published task, or as long as is cheap:
where the reference's cost grows as that size, and not as its square, that is the published size. So is a size that
weights alone have, as a table of codes or words, and a number of rounds: who leaves out some of many is right where
they are few. So is a batch of two or three, as long as a reference may be at all: who answers three rows is right at
the hidden shapes, too. Sizes of inputs are also three quarters of that once, and odd: a block that is made for the
published size alone is right there alone.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

from drkernel.judge.trusted.sizes import lift, shrink
from drkernel.judge.trusted.sizes.distinct_sizes import halved
from drkernel.judge.trusted.sizes.same_calls import are_same, calls_of
from drkernel.judge.trusted.sizes.size_cost import Cost, planned_cost
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

MOST = Cost(2**16, 2**17, 2e7)
"""What one forward of the reference may cost."""
_LONGER = 4
"""Times as long as in the small task, at least."""
_MORE_ROUNDS, _MOST_CALLS = 2, 1024
"""The same of a number of rounds, and how many operators of the reference they are at most: an interpreter launches
each."""
_SHAPES, _OF_WEIGHTS, _OF_ROUNDS = 3, 1, 1
"""Sizes of inputs, of weights alone, and numbers of rounds, that are tried at most: those that grow most."""
_BESIDE = 2
"""So many of the sizes of inputs are tried beside the long one, too."""
_BATCH, _BATCHES = 4, 1
"""A batch that is small has at least so many rows once; and how many sizes are taken for one."""
_FEW, _FEWEST = 8, 2
"""What the other sizes are lowered to; the second where it is too dear else, as it is with those of the small task."""


def references(task: Task, base: Reference, published: Reference, names: Sequence[str], seed: int) -> list[Reference]:
    """References with one long size each.

    Args:
        base: at the small sizes.
        names: the constants that size inputs.
    """
    small, full = base.constants, published.constants
    batches = (name for name in names if small[name] < _BATCH < full[name])
    larger = (_with_batch(task, base, full[name], name, seed) for name in batches)
    longer = [other for other in larger if other][:_BATCHES]
    if lift.network_sizes(task.source):
        return longer  # the submission has copies of other numbers, which were made smaller
    growth = {name: full[name] / size for name, size in small.items() if size > 1 and full[name] >= _LONGER * size}
    ranked = sorted(growth, key=lambda name: -growth[name])
    chosen = [name for name in ranked if name in names][:_SHAPES]
    others = (name for name in ranked if name not in names and _sizes_weights(task, base, name, seed))
    chosen += itertools.islice(others, _OF_WEIGHTS)
    more = (name for name in small if name not in {*chosen, *names} and full[name] >= _MORE_ROUNDS * small[name])
    rounds = list(itertools.islice((name for name in more if _is_number_of_rounds(task, base, name)), _OF_ROUNDS))
    chosen += rounds
    found = (next(_with_long(task, base, full[name], name, names, seed, name in rounds), None) for name in chosen)
    return [*(reference for reference in found if reference is not None), *longer]


def beside(task: Task, base: Reference, found: Sequence[Reference], names: Sequence[str], seed: int) -> list[Reference]:
    """Of references with one long size each, those that run with three quarters of it: an odd number, or else one of
    whole blocks of 16.

    Args:
        found: what `references` gives.
        names: the constants that size inputs.
    """
    small, others = base.constants, []
    for reference in found:
        sizes = reference.constants
        for name in [name for name in names if sizes[name] >= _LONGER * small[name]]:
            least = sizes[name] * 3 // 4
            given = (reference.constants | {name: size} for size in (least | 1, least // 16 * 16))
            others.append(next(filter(None, (_cheap(task, constants, seed) for constants in given)), None))
    return [other for other in others if other][:_BESIDE]


def _cheap(task: Task, constants: dict[str, int], seed: int) -> Reference | None:
    """The reference with these constants, if it runs and costs little."""
    cost = planned_cost(task, constants)
    if cost is None or cost.exceeds(MOST) or cost.undefined:
        return None
    return reference if _runs(reference := Reference(task, constants), seed) else None


def _with_batch(task: Task, base: Reference, size: int, name: str, seed: int) -> Reference | None:
    """The reference with a size of _BATCH or more instead of one below it."""
    while size >= _BATCH:
        other = Reference(task, {**base.constants, name: size})
        cost = planned_cost(task, other.constants)
        if cost and not cost.exceeds(shrink.MOST) and not cost.undefined and _runs(other, seed):
            return other
        size = halved(size, size // 2)
    return None


def _runs(reference: Reference, seed: int) -> bool:
    """Whether it is finite, and makes the calls that it makes at the published sizes."""
    with contextlib.suppress(DrKernelError):
        outputs = reference.forward(reference.model(seed).eval(), reference.inputs(seed))
        return shrink.finite(outputs) and are_same(reference, loops=False)
    return False


def _is_number_of_rounds(task: Task, base: Reference, name: str) -> bool:
    """Whether loops go round more often where a constant alone is larger."""
    other = Reference(task, {**base.constants, name: _MORE_ROUNDS * base.constants[name]})
    before, after = calls_of(base), calls_of(other)
    return before is not None and after is not None and before.number < after.number


def _has_many_calls(task: Task, constants: dict[str, int]) -> bool:
    calls = calls_of(Reference(task, constants))
    return calls is None or calls.number > _MOST_CALLS


def _sizes_weights(task: Task, base: Reference, name: str, seed: int) -> bool:
    """Whether a constant alone changes the shape of a parameter or a buffer."""
    with contextlib.suppress(DrKernelError):
        other = Reference(task, {**base.constants, name: base.constants[name] + 1})
        shapes, others = ([t.shape for t in of.model(seed).state_dict().values()] for of in (base, other))
        return shapes != others
    return False


def _with_long(
    task: Task, base: Reference, size: int, name: str, names: Sequence[str], seed: int, rounds: bool
) -> Iterator[Reference]:
    """References whose size `name` is `size`, or what halvings make of it; the longest first.

    Args:
        rounds: whether it is a number of rounds.
    """
    small = base.constants
    few, fewest = (small | {n: halved(small[n], cap) for n in names} for cap in (_FEW, _FEWEST))
    lowered = few, small, fewest
    least = (_MORE_ROUNDS if rounds else _LONGER) * small[name]
    while size >= least:
        tried: list[dict[str, int]] = []
        for others in lowered:
            constants = {**others, name: size}
            if constants in tried:
                continue
            tried.append(constants)
            if rounds and _has_many_calls(task, constants):
                continue
            if reference := _cheap(task, constants, seed):
                yield reference
        size = halved(size, size // 2)
