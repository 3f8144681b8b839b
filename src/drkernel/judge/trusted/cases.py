"""What a submission is tried on: secret seeds, other value distributions, other shapes, other weights.

Every seed is an HMAC of the judge's secret with the submission, the task and the case: nobody can predict it, and the
same judge always draws the same cases for the same submission. See judge/README.md, "Classes of cheats".
"""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from drkernel.judge.boundary.construction import perturbed_construction
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.boundary.shared_tensors import overlaps
from drkernel.judge.trusted.outputs import leaves
from drkernel.judge.trusted.tolerance import EPS, Expected
from drkernel.judge.trusted.weight_perturbation import assign, perturbed
from drkernel.tasks import module
from drkernel.tasks.module import ArgumentEffects, Reference
from drkernel.types import DrKernelError, Task

_MAX_DISCRETE, _SAMPLE = 4, 1024
"""A tensor with at most so many distinct values is discrete; elements that are looked at first to see that."""

PUBLISHED, DEFAULT_WEIGHTS, FIRST_HIDDEN = 0, 1, 2
"""Numbers of the models on both sides: the published shape with perturbed weights, the same with the weights that
construction gives, and, counting up, the hidden shapes with perturbed weights."""


Transform = Callable[[Tensor, Tensor], Tensor]
"""Other values for an input, from its values and their standardised form; element by element."""


class Perturbation(enum.Enum):
    """How the weights of a model differ from the defaults; see weight_perturbation."""

    NONE = enum.auto()
    OVERWRITE = enum.auto()
    """They are overwritten after construction."""
    CONSTRUCTION = enum.auto()
    """Constants get noise while the model is constructed."""


@dataclass(frozen=True)
class Plan:
    """One case before it is drawn."""

    name: str
    """What is special, in words that feedback can use: `the given inputs`, `another shape`, `large values`, ..."""
    model: int = PUBLISHED
    """Which model answers: PUBLISHED, DEFAULT_WEIGHTS, or FIRST_HIDDEN + k."""
    regime: str = "given"
    """The distribution of the inputs' values, see REGIMES."""
    train: bool = False

    @property
    def at_hidden_shape(self) -> bool:
        return self.model >= FIRST_HIDDEN


@dataclass
class Case:
    """A drawn case: inputs, and how to compute the expected outputs."""

    plan: Plan
    inputs: list
    seed: int
    """Of torch's generator during the forward."""
    compute_expected: Callable[[], Expected]

    @functools.cached_property
    def expected(self) -> Expected:
        """The expected outputs. Who asks for them while a submission works on the case need not wait for them later."""
        return self.compute_expected()


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
    """With OVERWRITE: the values that replace them."""
    jittered: dict[float, nn.Module] = field(default_factory=dict)
    """Copies of the model for `_jittered_forward`, by the size of the jitter."""

    @property
    def perturbed_at_construction(self) -> bool:
        return self.perturbation is Perturbation.CONSTRUCTION


class Seeds:
    """Secret numbers: `seeds("inputs", 3)` is unpredictable from outside and always the same for one submission."""

    def __init__(self, secret: bytes, *names: str):
        self._key = hmac.digest(secret, "\0".join(names).encode(), hashlib.sha256)

    def __call__(self, *what: Any) -> int:
        return int.from_bytes(hmac.digest(self._key, repr(what).encode(), hashlib.sha256)[:6], "big")


def build(reference: Reference, seed: int, perturbation: Perturbation = Perturbation.NONE) -> ReferenceModel:
    """Builds the reference's model under a seed."""
    with perturbed_construction(perturbation is Perturbation.CONSTRUCTION):
        model = reference.model(seed)
    built = ReferenceModel(reference, model, seed, perturbation)
    if perturbation is Perturbation.OVERWRITE:
        named = (*model.named_parameters(), *model.named_buffers())
        built.initial_weights = {name: tensor.detach().clone() for name, tensor in named}
        built.perturbed_weights = perturbed(model, seed)
        assign(model, built.perturbed_weights)
    return built


def draw(task: Task, plan: Plan, model: ReferenceModel, seed: int, terms: float) -> Case | None:
    """Draws a case; None where its regime does not suit the task (the reference fails, overflows or cannot tell).

    Args:
        terms: see `Expected`.
    """
    given = model.reference.inputs(seed)
    for transform in REGIMES[plan.regime]:
        inputs = [_transformed(value, transform) for value in given] if transform else given
        case = case_with(inputs, task, plan, model, seed, terms)
        if plan.regime == "given":
            return case
        with contextlib.suppress(DrKernelError):
            if case.expected.finite and case.expected.well_conditioned:
                return case
    return None


def case_with(inputs: list, task: Task, plan: Plan, model: ReferenceModel, seed: int, terms: float) -> Case:
    """A case with these inputs; arguments as those of `draw`."""
    compute = functools.partial(expected_outputs, task, model, inputs, plan.train, seed, terms)
    return Case(plan, inputs, seed, compute)


def expected_outputs(task: Task, model: ReferenceModel, inputs: list, train: bool, seed: int, terms: float) -> Expected:
    """The reference's outputs with their tolerance. Neither the model nor the inputs are changed.

    Also finds out, once, what the reference does with its arguments (`Reference.argument_effects`).
    """
    eps = EPS[task.precision]
    effects = model.reference.argument_effects.get(train)
    may_edit = effects is None or effects.edits
    given = map_tensors(inputs, lambda tensor: _in_layout(tensor, tensor)) if may_edit else inputs
    rounded = forward(model, model.model, given, train, seed)
    try:
        exact = _jittered_forward(model, inputs, train, seed, 0.0, in_fp64=True)
        jittered = _jittered_forward(model, inputs, train, seed, eps, in_fp64=module.DEVICE is None)
        expected = Expected(exact, rounded, jittered, eps, terms)
    except (DrKernelError, ValueError):  # the reference does not run in fp64: take its own precision for the truth
        expected = Expected(rounded, rounded, rounded, eps, 4 * terms)
    if effects is None:
        effects = model.reference.argument_effects[train] = ArgumentEffects(
            edits=not _equal(leaves(given), leaves(inputs)), aliases=_overlap(given, rounded)
        )
    expected.edits, expected.aliases = effects.edits, effects.aliases
    return expected


def _overlap(inputs: Any, outputs: Any) -> bool:
    before, after = ([t for _, t in leaves(tree) if isinstance(t, Tensor)] for tree in (inputs, outputs))
    return any(overlaps(a, b) for a in before for b in after)


def nearly_same(inputs: list, seed: int) -> list | None:
    """The same inputs but for single elements: a spike, and two elements exchanged. None without tensors.

    Outputs that are cached under a sample, a sum or the identity of their inputs are wrong for these.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    changed = False

    def change(tensor: Tensor) -> Tensor:
        nonlocal changed
        if tensor.numel() < 3:
            return tensor
        flat = tensor.contiguous().reshape(-1).clone()
        first, second, third = torch.randint(len(flat), (3,), generator=generator, device="cpu").tolist()
        flat[[first, second]] = flat[[second, first]]
        if not _is_discrete(tensor) and tensor.is_floating_point():
            flat[third] = flat.abs().max() * 3
        changed = True
        return _in_layout(flat.view(tensor.shape), tensor)

    result = [map_tensors(value, change) for value in inputs]
    return result if changed else None


def terms_per_output(trace: OpTrace) -> float:
    """How many terms enter one element of an output, from what the reference read, multiplied and wrote: at least 1."""
    terms = 1.0
    for row in trace.rows:
        written = max(1, row.output_numel)
        terms = max(terms, row.flops / (2 * written * max(1, row.calls)))
        terms = max(terms, row.arithmetic / (written * max(1, row.calls)))
    return terms


def mode_alternatives(reference: Reference, seed: int) -> list[tuple[bool, ...]]:
    """The values of `training` to test under.

    Each tuple of the list is an alternative: a submission must be right under one of them. It must be right under all
    modes in that tuple, which the cases use in turn.

    - `[(False, True)]` where the mode makes no difference in the reference: then it must make none in a submission.
    - `[(False,)]` where training is random (dropout).
    - `[(True,), (False,)]` where the modes differ otherwise (batch norm): KernelBench runs modules as they are
      constructed, and inference kernels are written for eval.
    """
    model = build(reference, seed)
    inputs = reference.inputs(seed)
    evaluated, trained, trained_again = (
        leaves(forward(model, model.model, inputs, train, s))
        for train, s in ((False, seed), (True, seed), (True, seed + 1))
    )
    if not _equal(trained, trained_again):
        return [(False,)]
    return [(False, True)] if _equal(evaluated, trained) else [(True,), (False,)]


def _equal(first: list, second: list) -> bool:
    same = lambda a, b: torch.allclose(a, b, equal_nan=True) if isinstance(a, Tensor) else a == b
    return len(first) == len(second) and all(same(a, b) for (_, a), (_, b) in zip(first, second, strict=True))


def forward(built: ReferenceModel, model: nn.Module, inputs: list, train: bool, seed: int) -> Any:
    """The outputs of `built.model`, or of a copy of it; the model is left as it is."""
    torch.manual_seed(seed)
    if next(model.buffers(), None) is not None:
        model = copy.deepcopy(model)  # training moves running statistics
    return built.reference.forward(model.train(train), inputs)


def _jittered_forward(built: ReferenceModel, inputs: list, train: bool, seed: int, jitter: float, in_fp64: bool) -> Any:
    """The outputs where inputs and weights are multiplied with 1 + jitter * u, u uniform in [-1, 1].

    Rounding the inputs once more also shows in the task's own precision, in half the time on a GPU.
    """
    generators: dict[torch.device, torch.Generator] = {}

    def change(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        dtype = torch.float64 if in_fp64 else tensor.dtype
        if not jitter:
            return tensor.to(dtype)
        device = tensor.device
        if device not in generators:
            generators[device] = torch.Generator(device).manual_seed(seed)
        changed = tensor.to(dtype, copy=True)
        noise = torch.empty_like(changed).uniform_(-jitter, jitter, generator=generators[device])
        return changed.addcmul_(changed, noise)

    if jitter not in built.jittered:
        built.jittered[jitter] = model = copy.deepcopy(built.model)
        if in_fp64:
            model.double()
        with torch.no_grad():
            for tensor in model.parameters():
                tensor.copy_(change(tensor))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if in_fp64 else before)
    try:
        return forward(built, built.jittered[jitter], [map_tensors(value, change) for value in inputs], train, seed)
    finally:
        torch.set_default_dtype(before)


def map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Applies a function to every tensor in a tree."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)([map_tensors(v, function) for v in value])
    return {k: map_tensors(v, function) for k, v in value.items()} if isinstance(value, dict) else value


def _transformed(value: Any, transform: Transform) -> Any:
    """Transforms the floating tensors of an input. Exact zeros stay (masks, triangles), and so do discrete values.

    Since transforms work element by element, symmetry stays as well.
    """

    def change(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point() or _is_discrete(tensor):
            return tensor
        x = tensor if tensor.dtype == torch.float64 else tensor.float()
        structured = int(x.count_nonzero()) < 0.95 * x.numel()
        centred = x if structured else x - x.mean()
        z = centred / x.std(correction=0).clamp_min(1e-6) if x.numel() > 1 else centred
        result = torch.where(x == 0, x, transform(x, z)) if structured else transform(x, z)
        return _in_layout(result, tensor)

    return map_tensors(value, change)


def _in_layout(values: Tensor, like: Tensor) -> Tensor:
    """The values with another tensor's dtype and strides."""
    expanded = 0 in like.stride() and like.numel() > 1
    empty = torch.empty_like(like) if expanded else like.new_empty_strided(like.shape, like.stride())
    return empty.copy_(values)


def _is_discrete(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.numel() <= 2 * _MAX_DISCRETE:
        return False
    few = len(tensor.reshape(-1)[:_SAMPLE].unique()) <= _MAX_DISCRETE  # sorting all of a large tensor takes long
    return few and len(tensor.unique()) <= _MAX_DISCRETE


_PURE: dict[str, tuple[Transform, ...]] = {
    "mirrored": (lambda x, z: -1.5 * z + 0.75, lambda x, z: -1.5 * x, lambda x, z: 0.3 + 0.5 * x),
    "large": (lambda x, z: 64 * z, lambda x, z: 64 * z.abs(), lambda x, z: 16 * z, lambda x, z: 8 * x),
    "heavy": (lambda x, z: -(z.abs() ** 3) - 0.1, lambda x, z: z**3, lambda x, z: z.abs() ** 3, lambda x, z: x**3),
    "integers": (lambda x, z: (2 * z).round(), lambda x, z: (2 * z).round().abs() + 1),
}
PURE = tuple(_PURE)
"""The regimes that change all values in one way."""


def _mixed(variant: int) -> Transform:
    """Every pure regime in a part of the rows of one input."""
    parts = [variants[min(variant, len(variants) - 1)] for variants in _PURE.values()]

    def transform(x: Tensor, z: Tensor) -> Tensor:
        if not x.dim():
            return parts[0](x, z)
        along = 0 if len(x) >= len(parts) else x.dim() - 1
        pieces = zip(parts, x.tensor_split(len(parts), along), z.tensor_split(len(parts), along), strict=True)
        return torch.cat([part(*piece) for part, *piece in pieces], along)

    return transform


REGIMES: dict[str, tuple[Transform | None, ...]] = {
    "given": (None,),
    **_PURE,
    "mixed": tuple(_mixed(variant) for variant in range(4)),
}
"""Value distributions by name, each with milder variants to fall back on where the reference leaves its domain."""

_DESCRIPTIONS = {
    "mirrored": "shifted values",
    "large": "large values",
    "heavy": "negative, heavy-tailed values",
    "integers": "small integers",
}
"""Of regimes, in words that feedback can use."""


def plans(train: tuple[bool, ...], shapes: int) -> Iterator[Plan]:
    """All cases, cheapest and most telling first.

    Args:
        train: the modes, to be used in turn.
        shapes: how many hidden shapes there are.
    """
    mode = lambda i: train[i % len(train)]
    yield Plan("the given inputs", PUBLISHED, "given", mode(0))
    yield Plan(_DESCRIPTIONS["mirrored"], PUBLISHED, "mirrored", mode(1))
    yield Plan(_DESCRIPTIONS["large"], PUBLISHED, "large", mode(0))
    for k in range(shapes):
        yield Plan("another shape", FIRST_HIDDEN + k, "given" if k == 0 else "mirrored", mode(k))
    yield Plan(_DESCRIPTIONS["heavy"], PUBLISHED, "heavy", mode(1))
    yield Plan(_DESCRIPTIONS["integers"], PUBLISHED, "integers", mode(0))
    yield Plan("the default weights", DEFAULT_WEIGHTS, "given", mode(1))


def lean_plans(train: tuple[bool, ...], shapes: int) -> Iterator[Plan]:
    """As `plans`, where the published shape is expensive: each regime at a hidden shape, all at once at the published
    one."""
    mode = lambda i: train[i % len(train)]
    for k in range(shapes):
        yield Plan("another shape", FIRST_HIDDEN + k, "given", mode(k))
    for k, regime in enumerate(PURE):
        yield Plan(f"another shape, {_DESCRIPTIONS[regime]}", FIRST_HIDDEN + k % shapes, regime, mode(k))
    yield Plan("shifted, large, heavy-tailed and integer values", PUBLISHED, "mixed", mode(1))
    yield Plan("the default weights", DEFAULT_WEIGHTS, "given", mode(1))
