"""How much larger the full-size task is than the small one that the interpreter runs.

The reference runs twice on fake tensors (no memory, no arithmetic), small and full. Operator by operator, that tells
into which size each tensor of the small run grows: an activation by one factor, a bias vector by another.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import torch

from drkernel.judge.boundary.aten import Recorder
from drkernel.judge.boundary.op_trace import OpTrace, Row
from drkernel.judge.trusted.outputs import leaves
from drkernel.judge.trusted.sizes.small_data import few, many
from drkernel.judge.trusted.sizes.without_data import without_data
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

_ABOUT = 0.99
"""Of a number of elements, which a growth was rounded for."""
_SOME_CALLS = 4
"""Of all kernels together, or of an operator, outside of any loop."""

_UNREAD = 1e-6
"""The weight of an input's shape: it decides where the reference reads slices of it alone."""


@dataclass(frozen=True)
class Scale:
    """Factors from the small task to the full one; `Scale()` changes nothing."""

    bytes: float = 1.0
    """All bytes that the reference moves, full / small: for tensors of a size that the reference never touches."""
    flops: float = 1.0
    """All products of the reference, full / small; as `bytes` where it has none."""
    numel: Mapping[int, float] = field(default_factory=dict)
    """Elements of a tensor in the small run -> factor of its size."""
    operators: Mapping[tuple[str, int, float], float] = field(default_factory=dict)
    """Operator, its output elements and its products in the small run -> factor of its products. In a network, two of
    one name may make as much of more or fewer products: a depthwise convolution and a pointwise one."""
    dense: Mapping[tuple[str, int, float], float] = field(default_factory=dict)
    """The same with all lanes, see Row.dense_flops."""
    made: Mapping[float, float] = field(default_factory=dict)
    """Products of an operator of the reference in the small run -> elements that it makes at full size."""
    calls: Mapping[str, float] = field(default_factory=dict)
    """Operator -> how many times as often it is called, where that grows: in a loop."""
    called: Mapping[str, int] = field(default_factory=dict)
    """Operator -> how many times it is called in the small run."""
    extents: Mapping[int, float] = field(default_factory=dict)
    """A dimension, or a product of neighbouring ones, of a tensor in the small run -> its factor: for grids."""
    ways: Mapping[int, Collection[float]] = field(default_factory=dict)
    """The same -> all of its factors, where several have this size."""

    longest: float = math.inf
    """The largest factor of one dimension of an input, or of their number: a loop of the reference is over one."""
    largest: float = math.inf
    """Elements at full size that a tensor has at most that the reference never touches, but for `least`."""
    least: float = 1.0
    """How much such a tensor grows at least, if not more than all bytes."""

    def of_tensor(self, numel: int) -> float:
        return self.numel.get(numel, min(self.bytes, max(self.least, self.largest / numel)) if numel > 1 else 1.0)

    def within(self, row: Row) -> Scale:
        """The same for one row: where a kernel is given no larger tensor, its workspace grows as its programs do.

        A dry run in which it is given less than the tensors that the reference has, too, says nothing of workspaces.
        """
        known = max((t.numel * self.numel.get(t.numel, 0.0) for t in row.tensors), default=0.0)
        if row.full_largest < max(1.0, _ABOUT * known):
            return self
        grown = row.full_grid * row.calls / max(row.programs, 1)
        return dataclasses.replace(self, largest=row.full_largest, least=max(1.0, grown))

    def of_calls(self, row: Row, launches: int = 0) -> float:
        """Of an operator that the reference calls, too, that of its name; else the largest, where there are several
        calls. What is called many times is taken to be in a loop. It grows as the data do; one of operators, no more
        than one dimension does.

        Args:
            launches: of all kernels of which no more is known: they may take turns.
        """
        if not row.triton and row.calls <= max(_SOME_CALLS, self.called.get(row.name, 0)):
            return self.calls.get(row.name, 1.0)
        many = max(row.calls, launches) > _SOME_CALLS
        loop = self.bytes if row.triton else min(self.bytes, self.longest)
        return max([1.0, *self.calls.values(), loop if many else 1.0]) if many or row.calls > 1 else 1.0

    def of_products(self, row: Row) -> float:
        return _growth(self.operators, row) or self.flops

    def made_by(self, row: Row) -> float:
        """Elements at full size that come of a kernel's products, where these are those of one operator, or more than
        half of them, as some are masked; else 0."""
        like = [flops for flops in self.made if 0.5 * flops < row.flops / max(row.calls, 1) < 1.001 * flops]
        return self.made[min(like)] if like else 0.0

    def of_dense(self, row: Row) -> float:
        """Of an operator's products with all lanes."""
        return _growth(self.dense, row) or self.flops


def _operator(row: Row) -> tuple[str, int, float]:
    """What tells an operator of products from others."""
    return row.name, row.output_numel, row.flops / max(row.calls, 1)


def _growth(operators: Mapping[tuple[str, int, float], float], row: Row) -> float:
    """The factor of an operator's products: of as many that make as much, be it by another name (`mm` for `addmm`); the
    largest of its name that makes as much, where none has as many; else 0."""
    name, numel, flops = _operator(row)
    same = [factor for (_, *made), factor in operators.items() if made == [numel, flops]]
    alike = [factor for (other, made, _), factor in operators.items() if (other, made) == (name, numel)]
    return operators.get(_operator(row)) or max(same or alike, default=0.0)


_cache: dict[tuple, Scale] = {}


def scale_of(task: Task, small: Mapping[str, int] | None = None, full: Mapping[str, int] | None = None) -> Scale:
    """The factors between `small` (module constants; default: the task's own) and the task as written, or with the
    constants `full`.

    The reference may read back what small inputs and activations hold. Where large ones decide what it does, all grows
    as its inputs do.

    Raises:
        DrKernelError: that is so, and it has products, so that nothing tells a time.
    """
    constants = dict(small if small is not None else task.small or {})
    large = dict(full or {})
    key = (task.digest, tuple(sorted(constants.items())), tuple(sorted(large.items())))
    if key not in _cache:
        _cache[key] = _scale(task, constants, large) if constants else Scale()
    return _cache[key]


def _scale(task: Task, constants: dict[str, int], full: dict[str, int]) -> Scale:
    problem: DrKernelError | None = None
    for run in (without_data, few, many):
        try:
            return _compared(_recorded(task, constants, run), _recorded(task, full, run))
        except DrKernelError as error:
            problem = error
    with contextlib.suppress(DrKernelError):
        before, after = _recorded(task, constants, many), _recorded(task, full, many, forward=False)
        if not any(row.flops for row in before.trace.rows):
            factor = _ratio(*(sum(map(math.prod, recorder.shapes[0])) for recorder in (after, before)))
            return dataclasses.replace(_compared(before, after), bytes=factor, flops=factor)
    raise DrKernelError(f"{problem}; so nothing tells how long it takes at the published sizes") from problem


def _recorded(
    task: Task,
    constants: Mapping[str, int],
    run: Callable[[], contextlib.AbstractContextManager[None]],
    forward: bool = True,
) -> Recorder:
    """What the reference does at some sizes. The shapes of its inputs are the first ones."""
    recorder = Recorder(OpTrace(), merge=False)
    reference = Reference(task, constants)
    with run():
        model, inputs = reference.model(0), reference.inputs(0)
        recorder.shapes.append([t.shape for _, t in leaves(inputs) if isinstance(t, torch.Tensor)])
        with recorder:
            _ = forward and reference.forward(model, inputs)
    return recorder


def _compared(small: Recorder, full: Recorder) -> Scale:
    """Pairs the two runs operator by operator; a size that grows in two ways takes the factor that moves more bytes."""
    before, after = small.trace.rows, full.trace.rows
    numel, extents = _Votes(), _Votes()
    operators, dense = dict[tuple[str, int, float], float](), dict[tuple[str, int, float], float]()
    made: dict[float, float] = {}
    if [row.name.partition(":")[0] for row in before] == [row.name.partition(":")[0] for row in after]:
        for one, other in zip(before, after, strict=True):
            for tensor, grown in zip(one.tensors, other.tensors, strict=False):
                numel.add(tensor.numel, grown.numel, grown.unique)
            if one.flops and other.flops:
                operators[_operator(one)] = other.flops / one.flops
                dense[_operator(one)] = other.dense_flops / one.dense_flops
                made[one.flops / one.calls] = min(other.output_numel, made.get(one.flops / one.calls, math.inf))
        shapes = (itertools.chain.from_iterable(recorder.shapes[1:]) for recorder in (small, full))
        for shape, grown in zip(*shapes, strict=False):
            _add_extents(extents, shape, grown, 1.0)
    longest = [len(full.shapes[0]) / max(len(small.shapes[0]), 1), 1.0]
    for given, published in zip(small.shapes[0], full.shapes[0], strict=False):
        numel.add(math.prod(given), math.prod(published), _UNREAD)
        _add_extents(extents, given, published, _UNREAD)
        longest += [grown / size for size, grown in zip(given, published, strict=False) if size]
    moved = _ratio(sum(row.bytes_unique for row in after), sum(row.bytes_unique for row in before))
    products = sum(row.flops for row in before)
    return Scale(
        bytes=moved,
        flops=_ratio(sum(row.flops for row in after), products) if products else moved,
        numel=numel.winners(),
        operators=operators,
        dense=dense,
        made=made,
        calls=_grown_calls(small.trace, full.trace),
        called=calls(small.trace),
        extents=extents.winners(),
        ways=extents.several(),
        longest=max(longest),
    )


def _add_extents(extents: _Votes, shape: torch.Size, grown: torch.Size, weight: float) -> None:
    """Adds the dimensions of a tensor, and the products of neighbouring ones."""
    if len(shape) == len(grown):
        for start, stop in itertools.combinations(range(len(shape) + 1), 2):
            extents.add(math.prod(shape[start:stop]), math.prod(grown[start:stop]), weight)


def calls(trace: OpTrace) -> Counter[str]:
    """By site, how often it is called in all."""
    found: Counter[str] = Counter()
    for row in trace.rows:
        found[row.site] += row.calls
    return found


def _grown_calls(small: OpTrace, full: OpTrace) -> dict[str, float]:
    before, after = calls(small), calls(full)
    return {name: after[name] / number for name, number in before.items() if number and after.get(name, 0) > number}


class _Votes:
    """Factor by small size, where the same size may grow in several ways."""

    def __init__(self) -> None:
        self._weights: dict[int, dict[float, float]] = defaultdict(lambda: defaultdict(float))

    def add(self, small: int, full: int, weight: float) -> None:
        if small and full:
            self._weights[small][full / small] += weight

    def several(self) -> dict[int, Collection[float]]:
        return {size: frozenset(factors) for size, factors in self._weights.items() if len(factors) > 1}

    def winners(self) -> dict[int, float]:
        return {size: max(factors, key=lambda factor: factors[factor]) for size, factors in self._weights.items()}


def _ratio(full: float, small: float) -> float:
    return full / small if full and small else 1.0
