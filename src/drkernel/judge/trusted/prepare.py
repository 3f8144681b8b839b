"""What the examiner prepares once per task: hidden shapes, modes, the cost of the reference, and whether it is fit."""

from __future__ import annotations

import functools
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.judge.boundary import flops
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.trusted import attribution
from drkernel.judge.trusted.attribution import CostModel, ReferenceCost
from drkernel.judge.trusted.cases import domain, modes, regimes, structure, thresholds, trivial_outputs
from drkernel.judge.trusted.cases.cases import Seeds
from drkernel.judge.trusted.cases.plans import FIRST_HIDDEN, FIRST_TIMED, HIDDEN_SHAPES, LONG, PUBLISHED
from drkernel.judge.trusted.cases.shared_cases import SharedCases
from drkernel.judge.trusted.cases.structure import SELECTING, Source
from drkernel.judge.trusted.comparison import judged_values, slices
from drkernel.judge.trusted.comparison.slices import Cut
from drkernel.judge.trusted.least_work import inputs_read, least_work
from drkernel.judge.trusted.outputs import leaves
from drkernel.judge.trusted.rounding.formats import PRODUCTS
from drkernel.judge.trusted.sizes import same_calls, shrink
from drkernel.judge.trusted.sizes.distinct_sizes import most_telling
from drkernel.judge.trusted.spent import spent
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

DEGENERATE = ("refuse", "mark")
"""What a judge does with a task that trivial outputs would pass: it raises an error, or its verdicts say so."""
_MAX_TRIES = 24
"""Sets of constants that are tried as hidden shapes."""
_WEIGHTS = 4
"""Weights that are tried, see _settle_weights."""
_STEADY_DRAWS = 4
"""Seeds under which inputs with other numbers are drawn, to see that they can be."""
_LARGE_BUDGET, _PATIENT_BUDGET = 4, 3
"""How much more time there is for all answers to a large task, and at most to one whose reference does much."""
_CHUNK = 2**28
"""Elements that are looked at together."""


@dataclass
class PreparedTask:
    """A task, ready to be set to any number of submissions."""

    task: Task
    reference: Reference
    """What submissions are compared with."""
    hidden: list[Reference]
    """The same task at shapes that are published nowhere."""
    mode_alternatives: list[tuple[bool, ...]]
    """See modes.mode_alternatives."""
    sources: tuple[Source, ...]
    """The random numbers that inputs are made of; see structure.observe."""
    halves: bool
    """Whether an input or a weight has fewer than 32 bits."""
    reference_costs: dict[bool, ReferenceCost]
    """What the reference costs, by the first mode of each alternative."""
    degenerate: str
    """The trivial outputs that would pass for right, in words; empty for a task that tells."""
    cuts: dict[bool, Cut]
    """Of a large task, how its inputs are cut, by mode; without those modes in which they cannot be."""
    timed: Sequence[Any] = field(default=(), kw_only=True)
    """The same task at other sizes that are timed, too, prepared as here; see timed_shapes."""
    dropped: Sequence[Mapping[str, Any]] = field(default=(), kw_only=True)
    """Shapes that would be timed, too, with the reason why they are not."""
    long: Sequence[Reference] = field(default=(), kw_only=True)
    """The task with one long size each, where the published sizes are not tried; see long_shapes."""
    resized: Sequence[Reference] = field(default=(), kw_only=True)
    """The task with other sizes of inputs that the model of the published shape takes; see resized. None on GPUs, where
    such cases have not run yet."""
    sizes: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    """Of such: the constants that differ from the published ones, at the sizes that count."""
    masked: bool = field(default=False, kw_only=True)
    """Whether outputs have infinities on given inputs: where a mask is, as a rule."""
    scaled: tuple[str, ...] = field(default=(), kw_only=True)
    """Regimes that get past thresholds of the reference that others do not get past; see thresholds."""
    narrow: bool = field(default=False, kw_only=True)
    """Whether the reference multiplies numbers of fewer than 32 bits, or has `halves`: then kernels may, too."""
    patience: float = field(default=1.0, kw_only=True)
    """How many times the usual work an interpreter may do for one call, since the reference does as much more."""
    shared: SharedCases | None = field(default=None, kw_only=True)
    """Cases that all submissions are asked. None: each has its own."""

    @property
    def reduces(self) -> bool:
        """Whether it is large and its outputs come from the whole batch."""
        return not all(cut.separable for cut in self.cuts.values())

    @property
    def more_time(self) -> float:
        """How many times as long as to other tasks all answers together may take."""
        return _LARGE_BUDGET if self.cuts else min(self.patience, _PATIENT_BUDGET)

    @property
    def special(self) -> tuple[str, ...]:
        """Regimes for some tasks: a few numbers that carry the result, where outputs of a large task come from the
        whole batch (of values that are all alike, a part stands for the rest); other indices, where it has some; and
        `scaled`."""
        indices = regimes.CHOICES if regimes.has_choices(self.sources) else ()
        return (*["few"] * self.reduces, *indices, *self.scaled)

    def reference_of(self, model: int) -> Reference:
        """The reference for a model by its number; see plans."""
        if model <= LONG:
            return self.long[LONG - model]
        if model >= FIRST_TIMED:
            return self.timed[model - FIRST_TIMED].reference
        return self.hidden[model - FIRST_HIDDEN] if model >= FIRST_HIDDEN else self.reference

    def elsewhere(self) -> list[Reference]:
        """All references at other shapes, in the order of their models."""
        return [*self.hidden, *(other.reference for other in self.timed)]


Prepared = TypeVar("Prepared", bound=PreparedTask)


class PreparedTaskCache(Generic[Prepared]):
    """The `size` prepared tasks that were asked for last, whose shared cases take `kept` bytes at most; of an unusable
    task, what is wrong with it."""

    def __init__(self, size: int, kept: int = 0):
        self._size, self._kept = size, kept
        self._found = OrderedDict[str, Prepared | str]()

    def __contains__(self, task: Task) -> bool:
        return task.digest in self._found

    def get(self, task: Task, prepare: Callable[[], Prepared]) -> Prepared:
        """A prepared task, which `prepare` makes where it is not there.

        Raises:
            DrKernelError: the task is unusable.
        """
        if task not in self:
            try:
                self._found[task.digest] = prepare()
            except DrKernelError as error:
                self._found[task.digest] = str(error)  # the error itself would keep all its tensors
            if len(self._found) > self._size:
                self._found.popitem(last=False)
        self._found.move_to_end(task.digest)
        found = self._found[task.digest]
        if isinstance(found, str):
            raise DrKernelError(found)
        self._share_room(found)
        return found

    def _share_room(self, latest: Prepared) -> None:
        """Half of the room for shared cases is the latest task's, half that of the tasks before it."""
        room = self._kept // 2
        for found in reversed(self._found.values()):
            if found is latest or isinstance(found, str) or not found.shared:
                continue
            room -= found.shared.bytes
            if room < 0:
                found.shared.forget()
        if latest.shared:
            latest.shared.limit = self._kept // 2


def prepare(
    reference: Reference,
    base: Reference,
    secret: bytes,
    cost_model: CostModel,
    record: Callable[[], AbstractContextManager[OpTrace]],
    published: Reference,
    large: bool = False,
    pause: Callable[[], object] = lambda: None,
) -> PreparedTask:
    """Prepares a task.

    Args:
        reference: what submissions are compared with.
        base: the same, at sizes that the hidden shapes are varied from.
        cost_model: of the device, for the reference's sizes.
        record: counts the operators of a block.
        published: the task at the sizes that count.
        large: what does not depend on sizes is found out at those of `base`.
        pause: called now and then, while others may have the device.

    Raises:
        DrKernelError: the reference fails.
    """
    task = reference.task
    seeds = Seeds(secret, task.digest)
    seed = seeds("paper")  # a name that stays, since hidden inputs derive from it
    sized = base if large else reference
    judged_values.expect_formats(sized, seed)
    alternatives = modes.mode_alternatives(sized, seed)
    cost = lambda train: reference_cost(reference, seed, train, cost_model, record, published)
    with spent("costs"):
        costs = {train: cost(train) for train, *_ in alternatives}
    pause()
    with (narrow := _NarrowFactors()):
        masked = not shrink.finite(base.forward(base.model(seed).eval(), base.inputs(seed)))
    with spent("hidden shapes"):
        hidden = most_telling(_hidden(task, base, seeds, published, masked), HIDDEN_SHAPES, published, base)
    pause()
    sources = structure.observe(base, seed)
    _expect_steady(base, sources, seeds)
    in_turn = {train for alternative in alternatives for train in alternative} if large else ()
    cuts = {train: cut for train in in_turn if (cut := slices.find_cut(base, seed, train))}
    halves = _has_halves(base, seed)
    prepared = PreparedTask(task, reference, hidden, alternatives, sources, halves, costs, "", cuts, masked=masked)
    prepared.narrow = halves or narrow.seen
    with spent("thresholds"):
        prepared.scaled = thresholds.unreached(base, sources, alternatives[0][0], seed)
    with spent("trivial outputs"):
        _settle_weights(prepared, sized, seeds, pause)
    return prepared


def _settle_weights(prepared: PreparedTask, sized: Reference, seeds: Seeds, pause: Callable[[], object]) -> None:
    """Chooses the seeds of the shared cases: the first of some under whose weights rounding decides nothing in
    evaluation, where running statistics are drawn, too; else the first. Notes which trivial outputs would pass.

    Leaves out modes in which wrong outputs would not show: deep networks tell in evaluation alone, where norms of few
    numbers magnify rounding, or in training alone, where running statistics do.
    """
    alternatives = prepared.mode_alternatives
    evaluation = alternatives[-1][0]

    @functools.cache
    def doubt(train: bool, weights: int) -> tuple[str, bool]:
        try:
            return trivial_outputs.doubt(sized, prepared.sources, train, seeds, weights, pause)
        except DrKernelError as error:
            if train is evaluation:
                raise
            return str(error), True

    drawn = [seeds.under("cases"), *(seeds.under("cases", draw) for draw in range(1, _WEIGHTS))]
    weights = {of_all("model", PUBLISHED): of_all for of_all in drawn}
    chosen = next((each for each in weights if not doubt(evaluation, each)[1]), next(iter(weights)))
    prepared.shared = SharedCases(weights[chosen])
    doubts = [doubt(train, chosen if train is evaluation else seeds("degenerate")) for train, *_ in alternatives]
    least = min(doubts)
    prepared.degenerate = least[0]
    if not prepared.degenerate and (sized is prepared.reference or doubts[-1][0]):  # elsewhere norms have more numbers
        pairs = zip(alternatives, doubts, strict=True)
        prepared.mode_alternatives = [modes for modes, found in pairs if found == least]


def expect_usable(prepared: Prepared, degenerate: str) -> Prepared:
    """The prepared task, if a judge with this setting (of DEGENERATE) takes it.

    Raises:
        DrKernelError: trivial outputs would pass for right, and such tasks are refused.
    """
    if prepared.degenerate and degenerate == "refuse":
        raise DrKernelError(f"task {prepared.task.id}: degenerate: {prepared.degenerate}")
    return prepared


def reference_cost(
    reference: Reference, seed: int, train: bool, cost_model: CostModel, record: Callable, published: Reference
) -> ReferenceCost:
    """What one forward costs; arguments as those of `prepare`."""
    model, inputs = reference.model(seed).train(train), reference.inputs(seed)
    with record() as trace:
        outputs = reference.forward(model, inputs)
    judged_values.expect_real(reference.task, outputs)
    least = least_work(published, train)
    sizes = [(t.numel(), _nonzero(t) * t.element_size()) for t in inputs_read(inputs, least)]  # zeros may be known
    written = sum(t.numel() * t.element_size() for _, t in leaves(outputs) if isinstance(t, Tensor))
    min_time_us = cost_model.min_time_us(attribution.bytes_read(trace, sizes), written)
    return ReferenceCost(trace, cost_model, min_time_us, least)


def _expect_steady(reference: Reference, sources: Sequence[Source], seeds: Seeds) -> None:
    """Regimes and perturbations need inputs that can be drawn with other numbers."""
    for number in range(_STEADY_DRAWS):
        seed = seeds("steady", number)
        for change in (regimes.touch(seed), regimes.change("mirrored", 0, seed)):
            try:
                structure.draw(reference, sources, seed, change)
            except structure.Unsteady:
                raise
            except DrKernelError:  # a regime that does not suit the task
                continue


def _nonzero(tensor: Tensor) -> int:
    return sum(int(part.count_nonzero()) for part in tensor.reshape(-1).split(_CHUNK))


def _has_halves(reference: Reference, seed: int) -> bool:
    tensors = [*reference.model(seed).parameters(), *(t for _, t in leaves(reference.inputs(seed)))]
    return any(map(_is_narrow, tensors))


def _is_narrow(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.element_size() < 4


def _multiplies(name: str) -> bool:
    return name in PRODUCTS or name in flops.PRODUCTS or name == "convolution_backward" or "attention" in name


class _NarrowFactors(TorchDispatchMode):
    """Notes whether an operator multiplies numbers that fit into fewer than 32 bits: floating values that had so few
    and were only moved since then."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False
        self._narrow: dict[int, Tensor] = {}
        """By memory, which is kept: else other tensors would lie there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        given = any(map(self._has_few_bits, (t for _, t in leaves([list(args), kwargs]))))
        outputs = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        self.seen = self.seen or (given and _multiplies(name))
        for _, made in leaves(outputs):
            if isinstance(made, Tensor) and (_is_narrow(made) or (given and (func.is_view or name in SELECTING))):
                self._narrow[made.untyped_storage()._cdata] = made
        return outputs

    def _has_few_bits(self, value: Any) -> bool:
        return isinstance(value, Tensor) and (_is_narrow(value) or value.untyped_storage()._cdata in self._narrow)


def _hidden(task: Task, base: Reference, seeds: Seeds, published: Reference, masked: bool) -> Iterator[Reference]:
    """References at other sizes that run alike, stay finite unless the task has infinities, and are not much larger.

    Those whose loops go round as often as at the published sizes come first.
    """
    seed = seeds("shapes")
    inputs = base.inputs(seed)
    known, later = {shrink.shapes_of(inputs)}, list[Reference]()
    limit = 4 * _elements(inputs) + 4096
    names = names_that_size_inputs(task, base, seed)
    sizes = shrink.hidden_shapes(base.constants, names, seed, published.constants)
    for constants in itertools.islice(sizes, _MAX_TRIES):
        try:
            other = Reference(task, constants)
            inputs = other.inputs(seed)
            shapes = shrink.shapes_of(inputs)
            if shapes in known or _elements(inputs) > limit:
                continue
            outputs = domain.forward(other, other.model(seed).eval(), inputs)
            if shrink.finite(outputs, masked) and same_calls.are_same(other, loops=False):
                known.add(shapes)
                if same_calls.are_same(other):
                    yield other
                else:
                    later.append(other)
        except DrKernelError:
            continue
    yield from later


def names_that_size_inputs(task: Task, reference: Reference, seed: int) -> list[str]:
    """The constants of which each alone changes the shape of an input."""
    return [name for name in reference.constants if _sizes_inputs(task, reference, name, seed)]


def _sizes_inputs(task: Task, reference: Reference, name: str, seed: int) -> bool:
    """Whether a constant alone changes the shape of an input (a kernel size or a number of groups does not)."""
    try:
        other = Reference(task, {**reference.constants, name: reference.constants[name] + 1})
        return shrink.shapes_of(other.inputs(seed)) != shrink.shapes_of(reference.inputs(seed))
    except DrKernelError:
        return False


def _elements(inputs: list) -> int:
    return sum(t.numel() for _, t in leaves(inputs) if isinstance(t, Tensor))
