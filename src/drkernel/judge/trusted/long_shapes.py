"""A task with one long size, the others small: what a kernel does beyond its first block.

At small sizes many a loop over blocks goes round once, and a block of a fixed size covers a row that it does not cover
at the published size. So each size that inputs have is once as long as in the published task, or as long as is cheap:
where the reference's cost grows as that size, and not as its square, that is the published size.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from drkernel.judge.trusted import lift, shrink
from drkernel.judge.trusted.distinct_sizes import halved
from drkernel.judge.trusted.size_cost import Cost, alike, planned_cost
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

MOST = Cost(2**16, 2**17, 2e7)
"""What one forward of the reference may cost."""
_LONGER = 4
"""Times as long as in the small task, at least."""
_SHAPES = 3
"""Sizes that are tried at most: those that grow most."""
_FEW, _FEWEST = 8, 2
"""What the other sizes are lowered to; the second where it is too dear else, as it is with those of the small task."""


def references(task: Task, base: Reference, published: Reference, names: Sequence[str], seed: int) -> list[Reference]:
    """References with one long size each.

    Args:
        base: at the small sizes.
        names: the constants that size inputs.
    """
    if lift.network_sizes(task.source):
        return []  # the submission has copies of these numbers, which were made smaller
    small, full = base.constants, published.constants
    growth = {name: full[name] / small[name] for name in names if small[name] > 1}
    chosen = [name for name in sorted(growth, key=lambda name: -growth[name]) if growth[name] >= _LONGER][:_SHAPES]
    found = (next(_with_long(task, base, full[name], name, names, seed), None) for name in chosen)
    return [reference for reference in found if reference is not None]


def _with_long(
    task: Task, base: Reference, size: int, name: str, names: Sequence[str], seed: int
) -> Iterator[Reference]:
    """References whose size `name` is `size`, or what halvings make of it; the longest first."""
    small = base.constants
    few, fewest = (small | {n: halved(small[n], cap) for n in names} for cap in (_FEW, _FEWEST))
    lowered = few, small, fewest
    while size >= _LONGER * small[name]:
        tried: list[dict[str, int]] = []
        for others in lowered:
            constants = {**others, name: size}
            if constants in tried:
                continue
            tried.append(constants)
            cost = planned_cost(task, constants)
            if cost is None or cost.exceeds(MOST) or cost.undefined:
                continue
            with contextlib.suppress(DrKernelError):
                reference = Reference(task, constants)
                outputs = reference.forward(reference.model(seed).eval(), reference.inputs(seed))
                if shrink.finite(outputs) and alike(reference):
                    yield reference
        size = halved(size, size // 2)
