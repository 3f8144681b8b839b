"""What a submission is tried on: secret seeds, other value distributions, other shapes, other weights.

Every seed is an HMAC of the judge's secret with the submission, the task and the case: nobody can predict it, and the
same judge always draws the same cases for the same submission. See judge/CHEATS.md.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import hashlib
import hmac
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from drkernel.judge.boundary import tf32
from drkernel.judge.boundary.construction import perturbed_construction
from drkernel.judge.trusted import domain, formats, lowering, regimes, rounding, structure, widened
from drkernel.judge.trusted.edits import ExpectedCall
from drkernel.judge.trusted.element_bounds import is_few, stands_alone
from drkernel.judge.trusted.mismatch import Mismatch
from drkernel.judge.trusted.outputs import all_same, in_layout, leaves, map_tensors, map_trees, not_finite, overlap
from drkernel.judge.trusted.plans import Plan
from drkernel.judge.trusted.regimes import REGIMES
from drkernel.judge.trusted.rerounding import Rerounded, Roundings
from drkernel.judge.trusted.slices import LARGE, Cut, SlicedExpected
from drkernel.judge.trusted.spent import spent
from drkernel.judge.trusted.structure import Source
from drkernel.judge.trusted.tolerance import Expected
from drkernel.judge.trusted.weight_perturbation import assign, beyond_half, perturbed
from drkernel.judge.trusted.whole_numbers import later_if_possible
from drkernel.tasks import module
from drkernel.tasks.module import ArgumentEffects, Reference
from drkernel.types import DrKernelError, Precision, Task

_ATTEMPTS, _UNKNOWN = 8, 2.0**-16
"""Places that are tried to find one that changes the inputs; relative error of outputs whose exact value is unknown."""
_NOISY_RUNS, _MORE_RUNS, _USUAL_RUNS = 4, 8, 1
"""Runs with noise: where outputs are few; before any are refused; usually. In one, errors may cancel."""


class Perturbation(enum.Enum):
    """How the weights of a model differ from the defaults; see weight_perturbation."""

    NONE = enum.auto()
    OVERWRITE = enum.auto()
    """They are overwritten after construction."""
    CONSTRUCTION = enum.auto()
    """Constants get noise while the model is constructed."""


Draw = Callable[[], list]
"""Draws inputs, the same each time."""


class Case:
    """A drawn case: inputs, and how to compute the expected outputs.

    Args:
        inputs: of a large case, how to draw them: they are drawn anew whenever they are needed, and not kept.
        seed: of torch's generator during the forward.
    """

    def __init__(
        self, plan: Plan, inputs: list | Draw, seed: int, compute_expected: Callable[[], Expected | SlicedExpected]
    ):
        self.plan, self.seed = plan, seed
        self._inputs, self._compute_expected = inputs, compute_expected

    @property
    def large(self) -> bool:
        """Whether outputs are compared slice by slice."""
        return callable(self._inputs)

    @property
    def inputs(self) -> list:
        return self._inputs() if callable(self._inputs) else self._inputs

    @functools.cached_property
    def expected(self) -> Expected | SlicedExpected:
        """The expected outputs. Who asks for them while a submission works on the case need not wait for them later."""
        return self._compute_expected()

    def can_tell(self) -> bool:
        """Whether the tolerance tells right from wrong. Where it does so of some outputs, these alone are compared."""
        of = self.expected
        return of.well_conditioned or (isinstance(of, Expected) and of.leave_out_vague())

    def check(self, outputs: Any) -> Mismatch | None:
        """Compares a submission's outputs. None if they are right."""
        expected = self.expected
        return expected.check(self.inputs, outputs) if isinstance(expected, SlicedExpected) else expected.check(outputs)

    def check_edits(self, inputs: Any) -> Mismatch | None:
        """Compares the inputs as a submission leaves them. None if they are as the reference leaves them."""
        expected = self.expected
        if isinstance(expected, SlicedExpected):
            return expected.check_edits(self.inputs, inputs)
        return expected.check_edits(inputs) if isinstance(expected, ExpectedCall) else None

    def is_among(self, values: list[Tensor]) -> bool:
        """Whether each expected output is, in some shape, one of these values; see Expected.is_among."""
        expected = self.expected
        return isinstance(expected, Expected) and expected.is_among(values)

    def fits(self, outputs: Any) -> bool:
        """Whether outputs are right, without saying why not."""
        expected = self.expected
        return expected.fits(outputs) if isinstance(expected, Expected) else self.check(outputs) is None


@dataclass
class ReferenceModel:
    """The reference's model, for one model of a submission with the same constructor arguments and weights."""

    reference: Reference
    model: nn.Module
    seed: int
    """Of torch's generator during construction."""
    perturbation: Perturbation
    initial_weights: dict[str, Tensor] = field(default_factory=dict)
    """With OVERWRITE: parameters and buffers as construction gives them."""
    perturbed_weights: dict[str, Tensor] = field(default_factory=dict)
    """With OVERWRITE: the model's own tensors whose values have replaced them."""
    copies: dict[str, nn.Module] = field(default_factory=dict)
    """Copies of the model for other precision: `exact` and `noisy`."""
    has_counts: bool = False
    """Whether an operator of a run with noise may have given whole numbers; see Noise."""

    @property
    def perturbed_at_construction(self) -> bool:
        return self.perturbation is Perturbation.CONSTRUCTION


class Seeds:
    """Secret numbers: `seeds("inputs", 3)` is unpredictable from outside and always the same for one submission."""

    def __init__(self, secret: bytes, *names: str):
        self._key = hmac.digest(secret, "\0".join(names).encode(), hashlib.sha256)

    def under(self, *what: Any) -> Seeds:
        """Seeds that have nothing in common with these."""
        return Seeds(self._key, "under", repr(what))

    def __call__(self, *what: Any) -> int:
        return int.from_bytes(hmac.digest(self._key, repr(what).encode(), hashlib.sha256)[:6], "big")


def build(
    reference: Reference, seed: int, perturbation: Perturbation = Perturbation.NONE, wide: bool = False
) -> ReferenceModel:
    """Builds the reference's model under a seed; `wide`: where weights are overwritten, with `beyond_half`."""
    with perturbed_construction(perturbation is Perturbation.CONSTRUCTION):
        model = reference.model(seed)
    built = ReferenceModel(reference, model, seed, perturbation)
    if perturbation is Perturbation.OVERWRITE:
        named = (*model.named_parameters(), *model.named_buffers())
        built.initial_weights = {name: tensor.detach().clone() for name, tensor in named}
        assign(model, values := (beyond_half if wide else dict)(perturbed(model, seed)))
        built.perturbed_weights = {name: tensor.detach() for name, tensor in named if name in values}
    return built


def draw(
    task: Task, plan: Plan, model: ReferenceModel, seed: int, sources: Sequence[Source], cut: Cut | None = None
) -> Case | None:
    """Draws a case; None where its regime does not suit the task (the reference fails, overflows or cannot tell).

    Args:
        sources: see `structure.observe`.
        cut: how the inputs of a large case are cut; None for others.
    """
    for variant in range(REGIMES[plan.regime]):
        change = regimes.change(plan.regime, variant, seed)
        inputs = functools.partial(structure.draw, model.reference, sources, seed, change)
        if change is None:
            return case_with(inputs, task, plan, model, seed, cut)
        with contextlib.suppress(DrKernelError):
            case = case_with(inputs, task, plan, model, seed, cut)
            if case.can_tell() and (case.expected.finite or _infinite_alike(case, model)):
                return case
    return None


def _infinite_alike(case: Case, model: ReferenceModel) -> bool:
    """Whether outputs are infinite just where they are for the given inputs: where a mask is, and not by overflow."""
    if not (isinstance(expected := case.expected, Expected) and expected.same_nonfinite):
        return False
    usual = forward(model, model.model, model.reference.inputs(case.seed), case.plan.train, case.seed)
    return all_same(not_finite(usual), not_finite(expected.rounded), exactly=True)


def case_with(inputs: Draw, task: Task, plan: Plan, model: ReferenceModel, seed: int, cut: Cut | None = None) -> Case:
    """A case with these inputs; arguments as those of `draw`."""
    lowered = plan.timed and plan.regime in ("given", "near_one")
    exactly = lambda values: expected_outputs(task, model, values, plan.train, seed, lowered)
    if cut is None:
        drawn = inputs()
        return Case(plan, drawn, seed, functools.partial(exactly, drawn))
    own = lambda values: forward(model, model.model, values, plan.train, seed)
    expected = SlicedExpected(cut, inputs(), exactly, own, seed)
    if not cut.separable:
        rerun = lambda: _Rerun(task.precision, model, inputs(), plan.train, seed, once=True)
        noisy = (rerun().noisy(number)[0] for number in range(_NOISY_RUNS))
        with contextlib.suppress(DrKernelError, ValueError, torch.OutOfMemoryError):  # bounds stay those of the sample
            expected.bound_by_noise(inputs, noisy)
        if module.DEVICE:
            torch.cuda.empty_cache()  # the submission is promised what these runs took
    model.copies.clear()
    return Case(plan, inputs, seed, lambda: expected)


def nearly_same(model: ReferenceModel, sources: Sequence[Source], first: Case, seed: int, *how: Any) -> Draw | None:
    """The inputs of a case but for single numbers, changed as by `regimes.touch`; None where there are none. Outputs
    that are cached under a sample, a sum or the identity of their inputs are wrong for these."""
    for i in range(_ATTEMPTS if sources else 0):
        inputs = functools.partial(structure.draw, model.reference, sources, first.seed, regimes.touch(seed + i, *how))
        if first.large:
            return inputs
        with contextlib.suppress(structure.Unsteady):
            if not all_same(leaves(drawn := inputs()), leaves(first.inputs), exactly=True):
                structure.touch_constants(model.reference, drawn, seed)
                return lambda: drawn  # a number may not reach the inputs: one above the diagonal of a triangle
    return None


def expected_outputs(
    task: Task, model: ReferenceModel, inputs: list, train: bool, seed: int, lowered: bool = False
) -> ExpectedCall:
    """The reference's outputs with their tolerance. Neither the model nor the inputs are changed.

    Also finds out, once, what the reference does with its arguments (`Reference.argument_effects`).

    Args:
        lowered: whether products of lower precision are to be known by the pattern of their errors.
    """
    effects = model.reference.argument_effects.get(train)
    may_edit = effects is None or effects.edits
    given = map_tensors(inputs, lambda tensor: in_layout(tensor, tensor)) if may_edit else inputs
    rounded = forward(model, model.model, given, train, seed)
    alone = any(isinstance(t, Tensor) and stands_alone(t.shape) for _, t in leaves(rounded))
    runs = _NOISY_RUNS if any(is_few(t) for _, t in leaves(rounded)) else _USUAL_RUNS
    if effects is None:
        edits = not all_same(leaves(given), leaves(inputs))
        effects = model.reference.argument_effects[train] = ArgumentEffects(edits, overlap(given, rounded))
    run = _Rerun(task.precision, model, inputs, train, seed, edits=effects.edits)
    pair = rounded, given if effects.edits else []
    try:
        exact = run.exact()
        whole = any(isinstance(t, Tensor) and not t.is_floating_point() for _, t in leaves(rounded))
        noisy = [*(run.noisy(number, whole) for number in range(runs)), *run.as_allowed(exact, formats.USUAL)]
        more = run.lowered() if lowered else (), seed, run.rerounded(_NOISY_RUNS * alone)
        expected = ExpectedCall(exact, pair, noisy, run.precision, *more)
        expected.set_more_noise(functools.partial(run.more, exact, runs, whole), run.in_allowed)
    except (DrKernelError, ValueError):  # the reference does not run in fp64: take its own precision for the truth
        widened = map_tensors(pair, lambda t: t * (1 + _UNKNOWN) if t.is_floating_point() else t)
        expected = ExpectedCall(pair, pair, [widened], run.precision)
    expected.edits, expected.aliases = effects.edits, effects.aliases
    expected.lowered_later, expected.chained = lambda: ((n, t[0]) for n, t in run.in_formats()), run.products > 1
    return expected


def forward(built: ReferenceModel, model: nn.Module, inputs: list, train: bool, seed: int) -> Any:
    """The outputs of `built.model`, or of a copy of it; the model is left as it is."""
    torch.manual_seed(seed)
    if next(model.buffers(), None) is None:
        return domain.forward(built.reference, model.train(train), inputs)
    if sum(weight.nbytes for weight in model.parameters()) < LARGE:
        return domain.forward(
            built.reference, copy.deepcopy(model).train(train), inputs
        )  # training moves running statistics
    kept = [(module, dict(module._buffers), copy.deepcopy(module._buffers)) for module in model.modules()]
    try:
        return domain.forward(built.reference, model.train(train), inputs)
    finally:
        for module, buffers, values in kept:
            module._buffers.update(buffers)
            for name, buffer in buffers.items():
                if buffer is not None and (value := values[name]) is not None:
                    buffer.copy_(value)


class _Rerun:
    """The reference run again on the same inputs with other rounding, see `rounding`.

    Args:
        once: it runs once only: then memory for one set of inputs is enough.
        edits: whether the reference changes its inputs.

    What a run gives is a pair: the outputs, and the inputs after the call, an empty list where they do not change.
    """

    def __init__(
        self,
        precision: Precision,
        built: ReferenceModel,
        inputs: list,
        train: bool,
        seed: int,
        once: bool = False,
        edits: bool = False,
    ):
        self._built, self._inputs, self._train, self._seed, self._once = built, inputs, train, seed, once
        self._edits = edits
        self.products = 0
        """How many operators of the reference are products, once it ran with noise."""
        self.precision: Precision = "ieee" if self._narrow() else precision
        """What is granted. A task of 16 bits grants rounding to its own format (`Noise`), whatever it says."""

    def exact(self, mode: Any = None) -> Any:
        """The outputs in fp64; with a mode of `rounding`, what it makes of them."""
        widened = lambda tensor: tensor.double() if tensor.is_floating_point() else tensor
        return self._run(self._copy("exact", widened), widened, torch.float64, mode)

    def noisy(self, number: int, whole: bool = False) -> Any:
        """The outputs with noise in every operator: of fp64 on the CPU, of fp32 on a GPU, where fp64 is slow.

        Args:
            whole: whether whole numbers get noise, too. It tells outputs that hang on a tie, such as the place of a
                maximum.
        """
        run = functools.partial(self._noisy, number, whole)
        return run(False) if self._once or not module.DEVICE else later_if_possible(run, self._built)

    def _noisy(self, number: int, whole: bool, later: bool) -> Any:
        """As `noisy`; if `later`, it may raise MayBeWhole."""
        wide = torch.float64 if module.DEVICE is None else torch.float32
        noise = rounding.Noise(self.precision, (self._seed + number) % 2**63, self._narrow(), later)

        def around(tensor: Tensor) -> Tensor:
            return noise.around(tensor.to(torch.promote_types(tensor.dtype, wide), copy=True), whole)

        change = lambda tensor: around(tensor) if tensor.is_floating_point() else tensor
        try:
            found = self._run(self._copy("noisy", change), change, wide, noise)
            noise.settle()
            return found
        finally:
            self.products = noise.products

    def rerounded(self, number: int) -> list[Any]:
        """The outputs in fp64 with the roundings of a 16-bit task drawn again, so many times; see rerounding."""
        if not number or not self._narrow():
            return []
        self._run(self._built.model, torch.clone, torch.get_default_dtype(), seen := Roundings())
        return [self.exact(Rerounded(seen.formats, self._seed + drawn)) for drawn in range(number)]

    def _narrow(self) -> torch.dtype | None:
        """The 16-bit format of inputs and weights, where they have one."""
        tensors = [*self._built.model.parameters(), *(t for _, t in leaves(self._inputs) if isinstance(t, Tensor))]
        found = {t.dtype for t in tensors if t.is_floating_point() and t.element_size() < 4}
        return torch.bfloat16 if torch.bfloat16 in found else next(iter(found), None)

    def lowered(self) -> Iterator[tuple[str, Any]]:
        """The outputs with products that the task refuses by their errors; none where there are no products."""
        if self.products and not self._narrow():
            with contextlib.suppress(DrKernelError):  # a reference that no mode follows is compared without
                for name, lower in formats.LOWERINGS[self.precision].items():
                    yield name, self.exact(formats.Lowered(lower))

    def as_allowed(self, exact: Any, ways: dict[Precision, tuple[formats.Lower, ...]]) -> Iterator[Any]:
        """The outputs with part of the errors of products in the formats that the task allows: of each, the largest."""
        worst = exact
        for other in self.in_allowed(ways):
            worst = map_trees(lowering.further, exact, worst, other)
        if worst is not exact:
            yield map_trees(lowering.part_of_the_way, exact, worst)

    def more(self, exact: Any, first: int, whole: bool) -> Iterator[Any]:
        """More outputs with noise, from number `first` on; see Expected.set_more_noise."""
        yield from (self.noisy(number, whole) for number in range(first, first + _MORE_RUNS))
        yield from self.as_allowed(exact, formats.ALLOWED)

    def in_allowed(self, ways: dict[Precision, tuple[formats.Lower, ...]] = formats.ALLOWED) -> Iterator[Any]:
        """The outputs with products in each format that the task allows, as they are asked for."""
        return (self.exact(formats.Lowered(lower)) for lower in ways[self.precision] if self.products)

    def in_formats(self) -> Iterator[tuple[str, Any]]:
        """The outputs with products in each format that the task forbids, as they are asked for."""
        if self.products and not self._narrow():
            with contextlib.suppress(DrKernelError):
                for name in formats.FORBIDDEN[self.precision]:
                    for lower in formats.FORMATS[name]:
                        yield name, self.exact(formats.Lowered(lower))

    def _copy(self, name: str, change: Callable[[Tensor], Tensor]) -> nn.Module:
        """A copy of the model with other parameters, made once."""
        if name not in self._built.copies:
            model = copy.deepcopy(self._built.model)
            with torch.no_grad():
                for tensor in (*model.parameters(), *model.buffers()):
                    tensor.data = change(tensor.data)
            self._built.copies[name] = model
        return self._built.copies[name]

    def _run(self, model: nn.Module, change: Callable[[Tensor], Tensor], dtype: torch.dtype, mode: Any) -> Any:
        inputs, given = [], self._inputs if self._once else list(self._inputs)
        while given:
            inputs.append(map_tensors(given.pop(0), (lambda tensor: change(tensor.clone())) if self._edits else change))
        kind = type(mode).__name__.lower() if mode else "exact"
        with spent(kind), tf32.allowing(False), widened.run(dtype, mode):
            return forward(self._built, model, inputs, self._train, self._seed), inputs if self._edits else []
