"""Smaller sizes for a task, so that an interpreter can run it, and odd ones that nobody published.

KernelBench keeps sizes in module constants; other sizes become some first (`lift`). Sizes are halved until the task is
cheap, which keeps most divisibility that a task relies on: all alike; else one by one; else those inside the network,
too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from drkernel.judge.boundary.aten import Recorder
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.trusted.outputs import leaves
from drkernel.judge.trusted.sizes import lift
from drkernel.judge.trusted.sizes.distinct_sizes import at_sizes, halved, parted
from drkernel.judge.trusted.sizes.loops import with_same_loops
from drkernel.judge.trusted.sizes.size_cost import LEAST_GROUP, Cost, cost_of, planned_cost
from drkernel.judge.trusted.sizes.window_sizes import with_fixed_windows
from drkernel.tasks.module import Reference
from drkernel.tasks.own_sizes import with_own_sizes
from drkernel.types import DrKernelError, Task

_CAPS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2**12, 2**14, 2**16)
"""Largest values of a constant that are tried, in turn; those beyond _USUAL_CAP are for tasks of one dimension."""
_USUAL_CAP = 1024
_MIN_SIZE = 16
"""Rows keep as many elements, where it is cheap."""
_SMALLEST_CAPS = (8, 4, 2)
_LEAST = (32, 8, 4)
"""What constants are lowered to one by one, in turn."""
_HALVINGS = ((2, 3), (4, 5))
"""How often widths are halved: rather the other constants are lowered than widths more than three times."""


CHEAP = Cost(2**16, 2**16, 2e7)
"""What a task is shrunk to if its constants allow it."""
MOST = Cost(2**20, 2**23, 2e9)
"""What is accepted where they allow no less (sizes inside the model)."""
OTHERS = Cost(2**19, 2**20, 2e8)
"""What is accepted where the first sizes turn out to tell nothing, and of constants that are halved alike."""
HEAVY = Cost(2**20, 2**21, 2e9)
"""From where on a network is rather narrowed."""
NETWORK = Cost(2**18, 2**20, 1e8)
"""What a network is narrowed to, which is more than that."""


def fit(task: Task, target: Cost = CHEAP, limit: Cost = MOST, most: Cost | None = None) -> Task:
    """The task with `small` set: as given, or the largest halving of its constants that is cheap and runs.

    Args:
        target: what is small enough.
        limit: what is accepted where the constants as they are written allow no less. Beyond it, expressions become
            constants, constants are lowered one by one, and networks become narrower.
        most: what is accepted where all this does not help. The network stays as it is then.

    Raises:
        DrKernelError: nothing that is small enough runs; the message says what the smallest attempt met.
    """
    if task.small is not None:
        return task
    Reference(task)  # which says what is wrong with the source
    own = dataclasses.replace(task, source=with_own_sizes(task.source))
    batches = dataclasses.replace(own, source=lift.lift_batches(own.source))
    forms = {form.source: form for form in (with_fixed_windows(own), own, task, batches)}
    problems: dict[str, DrKernelError] = {}
    for form in forms.values():
        try:
            return with_same_loops(parted(_fit(form, target, limit, most), target), OTHERS)
        except DrKernelError as error:
            problems[form.source] = error
    raise problems[task.source]


def _fit(task: Task, target: Cost, limit: Cost, most: Cost | None) -> Task:
    plain = dataclasses.replace(task, source=lift.lift(task.source))
    found, problem = _fitted_alike(task, target, limit)
    cost = None if found is None else cost_of(Reference(found, found.small))
    if found is not None and cost is not None and not cost.exceeds(OTHERS):
        return _defined(found, plain, target) if cost.undefined else _cheaper(found, cost, target)
    lowered = list(_lowered(plain, target))
    if found is not None and cost is not None and (most is not None or not cost.exceeds(HEAVY)):
        less = lowered[-1][1]  # constants that are halved alike stop at the first that others depend on
        return (less and less.helps(cost, target) and _fitted_one_by_one(plain, lowered, target, limit)) or found
    if found is None:
        found = _fitted_one_by_one(plain, lowered, target, HEAVY if most is None else most)
        if found is not None:
            return found
    narrow = _narrowed(plain, [small for small, _ in lowered], limit) if most is None else None
    found = narrow or found or _fitted_one_by_one(plain, lowered, target, most or limit)
    if found is None and most is not None:
        found, problem = _fitted_alike(task, target, most)
    if found is None:
        raise DrKernelError(f"task {task.id}: its sizes cannot be shrunk for the simulated device: {problem}")
    return found


def others(task: Task, limit: Cost = OTHERS) -> Iterator[Task]:
    """A task that `fit` has made small, at other small sizes, for tasks whose groups or images became too small.

    First such whose proportions are those of the published sizes, then larger ones.
    """
    full, small = Reference(task).constants, task.small or {}
    proportional = [
        {name: max(2, full[name] >> times) for name in small if full[name] >= 2 * _MIN_SIZE} for times in (6, 3)
    ]
    larger = [{name: halved(full[name], factor * value) for name, value in small.items()} for factor in (4, 16)]
    widths = {name: small[name] for name in lift.network_sizes(task.source) if name in small}
    seen = [small]
    for changed in (*proportional, *larger):
        constants = small | changed | widths
        cost = planned_cost(task, full | constants)
        if cost is not None and not cost.exceeds(limit) and constants not in seen:
            seen.append(constants)
            yield dataclasses.replace(task, small=constants)


def _fitted_alike(task: Task, target: Cost, limit: Cost) -> tuple[Task | None, str]:
    """The task with all constants halved alike; with those that are expressions only where that is not enough."""
    problem, tried = "", set()
    for expressions in (False, True):
        lifted = dataclasses.replace(task, source=lift.lift(task.source, expressions))
        if lifted.source in tried:
            continue
        tried.add(lifted.source)
        small, problem = _halved_alike(lifted, target, limit)
        if small is not None:
            constants = Reference(lifted).constants
            return at_sizes(lifted, _with_wide_rows(lifted, constants, small, target)), ""
    return None, problem


def _defined(found: Task, plain: Task, target: Cost) -> Task:
    """A task that is undefined at its small sizes at others, where there are some; else as it is."""
    moved = parted(found, target)
    if not cost_of(Reference(moved, moved.small)).undefined:
        return moved
    return _fitted_one_by_one(plain, list(_lowered(plain, target)), target, OTHERS) or moved


def _cheaper(found: Task, cost: Cost, target: Cost) -> Task:
    """A task that is not cheap with its constants lowered further, one by one; itself where that does not help."""
    if not cost.exceeds(target):
        return found
    small, less = list(_lowered(found, target))[-1]
    return at_sizes(found, small) if less and less.helps(cost, target) else found


def _fitted_one_by_one(
    task: Task, lowered: Sequence[tuple[dict[str, int], Cost | None]], target: Cost, limit: Cost
) -> Task | None:
    """The task with the smallest of some constants, larger again while it is cheap; None where it exceeds the limit."""
    small, cost = lowered[-1]
    return None if cost is None or cost.exceeds(limit) else at_sizes(task, _grown(task, small, target))


def _halved_alike(task: Task, target: Cost, limit: Cost) -> tuple[dict[str, int] | None, str]:
    """All constants, halved until they are below the largest cap that is cheap and runs; else None, and why."""
    best: dict[str, int] | None = None
    doubtful: dict[str, int] | None = None
    problem = "nothing small enough runs"
    constants = Reference(task).constants
    for cap in _CAPS:
        small = {name: halved(value, cap) for name, value in constants.items()}
        try:
            cost = planned_cost(task, small, limit)
            if cost is None or not cost.exceeds(limit):
                cost = cost_of(Reference(task, small))
        except DrKernelError as error:
            problem = str(error)
            continue
        if cost.exceeds(target) and (best is not None or cost.exceeds(limit)):
            if cap <= _USUAL_CAP:  # of larger ones the error of a smaller one tells more
                problem = f"it still has {cost.values} values, {cost.weights} weights and {cost.flops:.3g} operations"
            break
        if cost.undefined or cost.group < LEAST_GROUP:  # of an image of no pixels, or of one
            doubtful = small if doubtful is None or not cost.exceeds(target) else doubtful
            if cost.exceeds(target):
                break
            continue
        best = small
        if cost.exceeds(target):
            break
    return best or doubtful, problem


def _lowered(task: Task, target: Cost) -> Iterator[tuple[dict[str, int], Cost | None]]:
    """The constants, each as small as the others allow down to some least value, and the cost; less from time to time.
    They start at the small sizes, where the task has some.

    A size that others depend on (that of an image before a layer of fixed width) stays, and so does what costs nothing.
    """
    full = Reference(task).constants
    small = Reference(task, task.small).constants
    cost = planned_cost(task, small)
    movable = sorted((name for name in full if small[name] > 2), key=lambda name: -small[name])
    for least in _LEAST:
        for name in list(movable):
            if cost is None or not cost.exceeds(target) or small[name] <= least:
                continue
            lower, found = _with_lower(task, full, small, cost, name, least)
            if found is None or not found.helps(cost, target):
                movable.remove(name)
            else:
                small, cost = lower, found
        yield small, cost


def _with_lower(
    task: Task, full: dict[str, int], small: dict[str, int], before: Cost, name: str, least: int
) -> tuple[dict[str, int], Cost | None]:
    """One constant smaller, alone or together with those that are as large, and the cost; None where none runs."""
    equal = {other for other in full if full[other] == full[name]}
    for names in [{name}, equal][: 1 + (len(equal) > 1)]:
        for cap in (cap for cap in _CAPS if least <= cap < small[name]):
            changed = small | {other: min(small[other], halved(full[other], cap)) for other in names}
            cost = planned_cost(task, changed)
            if cost and cost.group >= min(LEAST_GROUP, before.group) and cost.undefined <= before.undefined:
                return changed, cost
    return small, None


def _grown(task: Task, small: dict[str, int], target: Cost) -> dict[str, int]:
    """Small constants, doubled together while that is cheap and runs."""
    full = Reference(task).constants
    for factor in (2, 4, 8, 16):
        larger = {name: halved(value, max(4, factor * small[name])) for name, value in full.items()}
        cost = planned_cost(task, larger)
        if larger == small or cost is None or cost.exceeds(target):
            break
        small = larger
    return small


def _narrowed(task: Task, lowered: Sequence[dict[str, int]], limit: Cost) -> Task | None:
    """The task with a narrower network: all sizes inside of it, and those of inputs that they come from, halved alike.

    They are halved until the network is cheap, or as often as it runs; those that cannot be halved so often stay, and
    one more where the network does not run else (the side of an image). None where that is not enough.

    Args:
        lowered: the other constants, in turn.
    """
    full = Reference(task).constants
    task = dataclasses.replace(task, source=lift.lift_network(task.source))
    widths = lift.network_sizes(task.source)
    best, least, undefined = None, None, True
    for halvings in _HALVINGS:
        for small, times in itertools.product(lowered, halvings):
            tied = {name: full[name] for name in small if small[name] == full[name] in widths.values()}
            narrow, cost = _halved_widths(task, widths | small, widths | tied, times)
            if cost is not None and not cost.exceeds(limit) and cost.undefined <= undefined:
                best, least, undefined = narrow, cost, cost.undefined
                if not cost.exceeds(NETWORK) and not undefined:
                    return at_sizes(task, best)
    return at_sizes(task, _with_pairs(task, best, least)) if best and least else None


def _with_pairs(task: Task, small: dict[str, int], before: Cost) -> dict[str, int]:
    """The constants of a network that is not cheap, with two images where there were four."""
    for name in (name for name, value in small.items() if value == min(_LEAST)):
        cost = planned_cost(task, small | {name: 2})
        if not cost or cost.undefined or cost.group < min(LEAST_GROUP, before.group):
            continue
        if cost.values < before.values > NETWORK.values:
            return small | {name: 2}
    return small


def _halved_widths(
    task: Task, small: dict[str, int], widths: dict[str, int], times: int
) -> tuple[dict[str, int], Cost | None]:
    """The constants with these widths halved, or all but one of them, and the cost; None where the network does not
    run."""
    doubtful: tuple[dict[str, int], Cost | None] = small, None
    for kept in ("", *sorted(widths)):
        narrow = small | {name: _divided(value, times) for name, value in widths.items() if name != kept}
        cost = planned_cost(task, narrow)
        if cost and not cost.undefined:
            return narrow, cost
        doubtful = (narrow, cost) if cost and not doubtful[1] else doubtful
    return doubtful


def _divided(value: int, times: int) -> int:
    return value // 2**times if value % 2**times == 0 else value


def _with_wide_rows(task: Task, constants: dict[str, int], small: dict[str, int], target: Cost) -> dict[str, int]:
    """Other small sizes, whose rows have the _MIN_SIZE elements that kernels with tl.dot expect, where that is cheap.

    The other sizes become smaller instead.
    """
    widths = {name: _widened(small[name], constants[name]) for name in small if _sizes_rows(task, small, name)}
    if all(value == small[name] for name, value in widths.items()) or not _multiplies(Reference(task, small)):
        return small
    for cap in _SMALLEST_CAPS:
        others = {name: halved(value, min(cap, small[name])) for name, value in constants.items()}
        with contextlib.suppress(DrKernelError):
            wide = Reference(task, others | widths)
            before, after = _distinct_sizes(Reference(task, small)), _distinct_sizes(wide)
            fewer = any(now < then for then, now in zip(before, after, strict=True))
            if not fewer and not (cost := cost_of(wide)).exceeds(target) and not cost.undefined:
                return others | widths
    return small


def _distinct_sizes(reference: Reference) -> list[int]:
    """How many sizes each input has: equal ones would hide a kernel that takes rows for columns."""
    return [len(set(shape)) for shape in shapes_of(reference.inputs(0))]


def _multiplies(reference: Reference) -> bool:
    """Whether the reference has products of matrices: attention too, which torch does not count on a CPU."""
    recorder = Recorder(OpTrace())
    inputs, model = reference.inputs(0), reference.model(0)
    with recorder:
        reference.forward(model.eval(), inputs)
    return any(row.flops for row in recorder.trace.rows)


def _widened(small: int, full: int) -> int:
    while small < _MIN_SIZE and 2 * small <= full:
        small *= 2
    return small


def _sizes_rows(task: Task, small: dict[str, int], name: str) -> bool:
    """Whether a constant sizes the last dimension of an input."""
    last = lambda constants: [shape[-1:] for shape in shapes_of(Reference(task, constants).inputs(0))]
    try:
        return small[name] < _MIN_SIZE and last(small) != last({**small, name: 2 * small[name]})
    except DrKernelError:
        return False


def hidden_shapes(
    before: Mapping[str, int], names: Sequence[str], offset: int, published: Mapping[str, int] | None = None
) -> Iterator[dict[str, int]]:
    """Other values of the constants that size the inputs, most telling first; the caller tries which of them run.

    Constants that are equal here and not in the published task become different, in the first of them all.

    Args:
        before: all constants at their small values.
        names: those that size an input.
        offset: a secret number; rotates the order of equally good names.
        published: all constants at their published values.
    """
    published = published or before
    names = [name for name in names if before[name] >= 3 or published[name] > before[name] == 2]
    names = names[offset % len(names) :] + names[: offset % len(names)] if names else []
    rank = {name: _rank(name, names, before, published) for name in names}
    odd = {name: before[name] + 1 + 2 * rank[name] for name in names}
    less = {name: max(2, before[name] - 3 - 2 * rank[name]) for name in names}
    smaller = {name: max(2, (3 - rank[name] % 3) * before[name] // 4) for name in names}
    tried = [odd, less, {**odd, **{n: less[n] for n in names[::2]}}, smaller]
    tried += [{name: change[name]} for change, name in itertools.product((odd, less, smaller), reversed(names))]
    tried += [{name: 2 * before[name]} for name in reversed(names)]
    tied = [[n for n in names if published[n] == published[name] and before[n] == before[name]] for name in names]
    tried += [{n: f * before[n] // 4 for n in equal} for f in (8, 6, 2) for equal in tied if len(equal) > 1]
    for change in tried:
        yield {**before, **change}


def _rank(name: str, names: Sequence[str], before: Mapping[str, int], published: Mapping[str, int]) -> int:
    """How many published sizes that became equal to this one are smaller."""
    return len({published[n] for n in names if before[n] == before[name] and published[n] < published[name]})


def shapes_of(inputs: list) -> tuple[tuple[int, ...], ...]:
    """The shapes of all tensors among the inputs."""
    return tuple(tuple(t.shape) for _, t in leaves(inputs) if isinstance(t, Tensor))


def finite(tree: Any, infinities: bool = False) -> bool:
    """Whether no floating tensor of a tree has a NaN or an infinity; with `infinities`, whether none has a NaN."""
    ordinary = (lambda t: ~t.isnan()) if infinities else torch.isfinite
    return all(bool(ordinary(t).all()) for _, t in leaves(tree) if isinstance(t, Tensor) and t.is_floating_point())
