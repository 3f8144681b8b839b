"""What a submission is tried on: secret seeds, other value distributions, other shapes, other weights.

Every seed is an HMAC of the judge's secret with the submission, the task and the case: nobody can predict it, and the
same judge always draws the same cases for the same submission. See judge/CHEATS.md.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from drkernel.judge.trusted.cases import regimes, structure
from drkernel.judge.trusted.cases.plans import Plan
from drkernel.judge.trusted.cases.reference_model import ReferenceModel
from drkernel.judge.trusted.cases.regimes import REGIMES
from drkernel.judge.trusted.cases.reruns import NOISY_RUNS, Rerun, forward
from drkernel.judge.trusted.cases.structure import Source
from drkernel.judge.trusted.comparison.edits import ExpectedCall
from drkernel.judge.trusted.comparison.element_bounds import is_few, stands_alone
from drkernel.judge.trusted.comparison.mismatch import Mismatch
from drkernel.judge.trusted.comparison.slices import Cut, SlicedExpected
from drkernel.judge.trusted.comparison.tolerance import Expected
from drkernel.judge.trusted.outputs import (
    all_same,
    as_output,
    in_layout,
    is_float,
    leaves,
    map_tensors,
    map_trees,
    not_finite,
    overlap,
)
from drkernel.tasks import module
from drkernel.tasks.module import ArgumentEffects
from drkernel.types import DrKernelError, Task

_ATTEMPTS, _UNKNOWN = 8, 2.0**-16
"""Places that are tried to find one that changes the inputs; relative error of outputs whose exact value is unknown."""
_LOOKED_AT, _HALVINGS = 8, 12
"""Draws that are looked at for one that lower precision confuses; and how near it is to one with other outputs: TF32
has 11 bits."""
_MORE_RUNS, _USUAL_RUNS = 8, 1
"""Runs with noise: before any outputs are refused; usually. In one, errors may cancel."""


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


class Seeds:
    """Secret numbers: `seeds("inputs", 3)` is unpredictable from outside and always the same for one submission."""

    def __init__(self, secret: bytes, *names: str):
        self._key = hmac.digest(secret, "\0".join(names).encode(), hashlib.sha256)

    def under(self, *what: Any) -> Seeds:
        """Seeds that have nothing in common with these."""
        return Seeds(self._key, "under", repr(what))

    def __call__(self, *what: Any) -> int:
        return int.from_bytes(hmac.digest(self._key, repr(what).encode(), hashlib.sha256)[:6], "big")


def draw(
    task: Task, plan: Plan, model: ReferenceModel, seed: int, sources: Sequence[Source], cut: Cut | None = None
) -> Case | None:
    """Draws a case; None where its regime does not suit the task (the reference fails, overflows or cannot tell).

    Args:
        sources: see `structure.observe`.
        cut: how the inputs of a large case are cut; None for others.
    """
    if plan.way is not None:
        return None if cut else _confused(task, plan, model, seed, plan.way)
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


def _confused(task: Task, plan: Plan, model: ReferenceModel, seed: int, way: int) -> Case | None:
    """The first of some draws whose outputs are wrong where products are computed in this way: rounding seldom moves
    the place of a maximum, so it lies just before one where an output changes. None where there is none, or an output
    is no whole number, since such a one shows every format."""
    for number in range(seed, seed + _LOOKED_AT):
        if (inputs := _before_a_change(model, plan, number)) is None:
            return None
        case = case_with(inputs.copy, task, plan, model, number)
        lowered = case.expected.lowered_later() if isinstance(case.expected, Expected) else ()
        for _, outputs in itertools.islice(lowered, way, way + 1):
            if not case.fits(map_trees(as_output, outputs)):
                return case
    return None


def _before_a_change(model: ReferenceModel, plan: Plan, seed: int) -> list | None:
    """Inputs on the way from one draw to another, just before an output changes; None where none does, or one is no
    whole number."""
    first, last = model.reference.inputs(seed), model.reference.inputs(~seed & (2**48 - 1))

    def at(share: float) -> list:
        mixed = lambda a, b: a + share * (b - a) if isinstance(a, Tensor) and a.is_floating_point() else a
        return map_trees(mixed, first, last)

    run = lambda share: forward(model, model.model, at(share), plan.train, seed)
    found, before, after = run(0.0), 0.0, 1.0
    if _has_floats(found) or all_same(leaves(found), leaves(run(1.0))):
        return None
    for _ in range(_HALVINGS):
        middle = (before + after) / 2
        same = all_same(leaves(found), leaves(run(middle)))
        before, after = (middle, after) if same else (before, middle)
    return at(before)


def _has_floats(outputs: Any) -> bool:
    return any(is_float(value) for _, value in leaves(outputs))


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
        rerun = lambda: Rerun(task.precision, model, inputs(), plan.train, seed, once=True)
        noisy = (rerun().noisy(number)[0] for number in range(NOISY_RUNS))
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
    runs = NOISY_RUNS if any(is_few(t) for _, t in leaves(rounded)) else _USUAL_RUNS
    if effects is None:
        edits = not all_same(leaves(given), leaves(inputs))
        effects = model.reference.argument_effects[train] = ArgumentEffects(edits, overlap(given, rounded))
    run = Rerun(task.precision, model, inputs, train, seed, edits=effects.edits)
    pair = rounded, given if effects.edits else []
    try:
        exact = run.exact()
        whole = any(isinstance(t, Tensor) and not t.is_floating_point() for _, t in leaves(rounded))
        noisy = [*(run.noisy(number, whole) for number in range(runs)), *run.as_allowed(exact)]
        more = run.lowered() if lowered else (), seed, run.rerounded(NOISY_RUNS * alone)
        expected = ExpectedCall(exact, pair, noisy, run.precision, *more)
        numbers = range(runs, runs + _MORE_RUNS)
        expected.set_more_noise(functools.partial(run.more_noisy, exact, numbers, whole), run.in_allowed)
    except (DrKernelError, ValueError):  # the reference does not run in fp64: take its own precision for the truth
        widened = map_tensors(pair, lambda t: t * (1 + _UNKNOWN) if t.is_floating_point() else t)
        expected = ExpectedCall(pair, pair, [widened], run.precision)
    expected.edits, expected.aliases = effects.edits, effects.aliases
    expected.lowered_later, expected.chained = lambda: ((n, t[0]) for n, t in run.in_formats()), run.products > 1
    return expected
