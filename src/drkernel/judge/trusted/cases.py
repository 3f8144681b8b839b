"""What a submission is tried on: secret seeds, other value distributions, other shapes, other weights.

Every seed is an HMAC of the judge's secret with the submission, the task and the case: nobody can predict it, and the
same judge always draws the same cases for the same submission. Source: reference/judging.md 3.2.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.boundary.shared_tensors import overlaps
from drkernel.judge.trusted.tolerance import UNIT, Expected, leaves
from drkernel.judge.trusted.weight_perturbation import assign, perturbed, varied_construction
from drkernel.tasks import module
from drkernel.tasks.module import ArgumentEffects, Reference
from drkernel.types import DrKernelError, Task

_DISCRETE, _SAMPLE = 4, 1024


@dataclass(frozen=True)
class Plan:
    """One case before it is drawn."""

    name: str
    """What is special, in words that feedback can use: `the given inputs`, `another shape`, `large values`, ..."""
    model: int = 0
    """Which model answers: 0 and 1 have the task's shape (1 keeps its own weights), 2 and up are hidden shapes."""
    regime: str = "given"
    train: bool = False


@dataclass
class Case:
    """A drawn case: inputs, and how to find the right answer."""

    plan: Plan
    inputs: list
    seed: int
    solve: Callable[[], Expected]

    @functools.cached_property
    def expected(self) -> Expected:
        """The right answer. Who asks for it while a submission works on the case need not wait for it later."""
        return self.solve()


@dataclass
class Side:
    """The reference's side of one model: where the submission must have the same constructor arguments and weights."""

    reference: Reference
    model: nn.Module
    seed: int
    varied: bool = False
    """Constructed under `varied_construction`."""
    weights: dict[str, Tensor] = field(default_factory=dict)
    """The weights under this seed before perturbation; empty where they are left alone."""
    values: dict[str, Tensor] = field(default_factory=dict)
    """The perturbed weights."""
    others: dict[float, nn.Module] = field(default_factory=dict)
    """The model in other precisions, by how much its weights are shaken."""


class Seeds:
    """Secret numbers: `seeds("inputs", 3)` is unpredictable from outside and always the same for one submission."""

    def __init__(self, secret: bytes, *names: str):
        self._key = hmac.digest(secret, "\0".join(names).encode(), hashlib.sha256)

    def __call__(self, *what: Any) -> int:
        return int.from_bytes(hmac.digest(self._key, repr(what).encode(), hashlib.sha256)[:6], "big")


def side(reference: Reference, seed: int, perturb: bool, varied: bool = False) -> Side:
    """Builds the reference's model under a seed, with perturbed weights if asked for."""
    with varied_construction(varied):
        model = reference.model(seed)
    made = Side(reference, model, seed, varied)
    if perturb:
        made.weights = {n: t.detach().clone() for n, t in (*model.named_parameters(), *model.named_buffers())}
        made.values = perturbed(model, seed)
        assign(model, made.values)
    return made


def draw(task: Task, plan: Plan, side: Side, seed: int, depth: float) -> Case | None:
    """Draws a case; None where its regime does not suit the task (the reference fails, overflows or cannot tell)."""
    base = side.reference.inputs(seed)
    for transform in REGIMES[plan.regime]:
        inputs = [_map(value, transform) for value in base] if transform else base
        case = pose(task, plan, side, inputs, seed, depth)
        if plan.regime == "given":
            return case
        with contextlib.suppress(DrKernelError):
            if case.expected.finite and case.expected.sharp:
                return case
    return None


def pose(task: Task, plan: Plan, side: Side, inputs: list, seed: int, depth: float) -> Case:
    """A case with these inputs."""
    return Case(plan, inputs, seed, functools.partial(answer, task, side, inputs, plan.train, seed, depth))


def answer(task: Task, side: Side, inputs: list, train: bool, seed: int, depth: float) -> Expected:
    """The reference's answer with its tolerance. Neither the model nor the inputs are changed."""
    unit = UNIT[task.precision]
    conduct = side.reference.conduct.get(train)
    careless = conduct is None or conduct.edits
    given = each(inputs, lambda tensor: _in_layout(tensor, tensor)) if careless else inputs
    rounded = forward(side, side.model, given, train, seed)
    try:
        exact = _again(side, inputs, train, seed, 0.0, wide=True)
        shaken = _again(side, inputs, train, seed, unit, wide=module.DEVICE is None)
        expected = Expected(exact, rounded, shaken, unit, depth)
    except (DrKernelError, ValueError):  # the reference does not run in fp64: take its own precision for the truth
        expected = Expected(rounded, rounded, rounded, unit, 4 * depth)
    if conduct is None:
        conduct = side.reference.conduct[train] = ArgumentEffects(
            edits=not _equal(leaves(given), leaves(inputs)), aliases=_overlap(given, rounded)
        )
    expected.edits, expected.aliases = conduct.edits, conduct.aliases
    return expected


def _overlap(inputs: Any, outputs: Any) -> bool:
    before, after = ([t for _, t in leaves(tree) if isinstance(t, Tensor)] for tree in (inputs, outputs))
    return any(overlaps(a, b) for a in before for b in after)


def touched(inputs: list, seed: int) -> list | None:
    """The same inputs but for single elements: a spike, and two elements exchanged. None without tensors.

    An answer that is cached under a sample, a sum or the identity of its inputs is stale for these.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    changed = False

    def touch(tensor: Tensor) -> Tensor:
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

    result = [each(value, touch) for value in inputs]
    return result if changed else None


def depth_of(trace: OpTrace) -> float:
    """Terms that enter one element of an output, from what the reference read, multiplied and wrote: at least 1."""
    depth = 1.0
    for row in trace.rows:
        written = max(1, row.output_numel)
        depth = max(depth, row.flops / (2 * written * max(1, row.calls)))
        depth = max(depth, row.arithmetic / (written * max(1, row.calls)))
    return depth


def modes(reference: Reference, seed: int) -> list[tuple[bool, ...]]:
    """The values of `training` to test under; where there are alternatives, an answer must be right under one of them.

    Both where the mode makes no difference in the reference (then it must make none in an answer); only eval where
    training is random (dropout). Where they differ otherwise (batch norm), either will do: KernelBench runs modules as
    they are constructed, and inference kernels are written for eval.
    """
    side = Side(reference, reference.model(seed), seed)
    inputs = reference.inputs(seed)
    calm, busy, other = (
        leaves(forward(side, side.model, inputs, train, s))
        for train, s in ((False, seed), (True, seed), (True, seed + 1))
    )
    if not _equal(busy, other):
        return [(False,)]
    return [(False, True)] if _equal(calm, busy) else [(True,), (False,)]


def _equal(first: list, second: list) -> bool:
    same = lambda a, b: torch.allclose(a, b, equal_nan=True) if isinstance(a, Tensor) else a == b
    return len(first) == len(second) and all(same(a, b) for (_, a), (_, b) in zip(first, second, strict=True))


def forward(side: Side, model: nn.Module, inputs: list, train: bool, seed: int) -> Any:
    """What a model of the reference's side answers; the model is left as it is."""
    torch.manual_seed(seed)
    if next(model.buffers(), None) is not None:
        model = copy.deepcopy(model)  # training moves running statistics
    return side.reference.forward(model.train(train), inputs)


def _again(side: Side, inputs: list, train: bool, seed: int, shake: float, wide: bool) -> Any:
    """The forward with inputs and weights multiplied with 1 + shake * u, u uniform in [-1, 1]; wide: in fp64.

    What inputs that are rounded once more change also shows in the task's own precision, in half the time on a GPU.
    """
    generators: dict[torch.device, torch.Generator] = {}

    def widen(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        kind = torch.float64 if wide else tensor.dtype
        if not shake:
            return tensor.to(kind)
        device = tensor.device
        if device not in generators:
            generators[device] = torch.Generator(device).manual_seed(seed)
        shaken = tensor.to(kind, copy=True)
        noise = torch.empty_like(shaken).uniform_(-shake, shake, generator=generators[device])
        return shaken.addcmul_(shaken, noise)

    if shake not in side.others:
        side.others[shake] = model = copy.deepcopy(side.model)
        if wide:
            model.double()
        with torch.no_grad():
            for tensor in model.parameters():
                tensor.copy_(widen(tensor))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if wide else before)
    try:
        return forward(side, side.others[shake], [each(value, widen) for value in inputs], train, seed)
    finally:
        torch.set_default_dtype(before)


def seed_one_generator() -> None:
    """Makes torch.manual_seed seed the CPU's generator alone: for every absent device it would log a stack trace."""
    torch.manual_seed = lambda seed: torch.default_generator.manual_seed(int(seed))


def each(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Applies a function to every tensor in a tree."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)([each(v, function) for v in value])
    return {k: each(v, function) for k, v in value.items()} if isinstance(value, dict) else value


def _map(value: Any, transform: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """Transforms the floating tensors of an input; exact zeros stay (masks, triangles), and so do discrete values.

    `transform` gets x and its standardised form, and works element by element, which keeps symmetry and structure.
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

    return each(value, change)


def _in_layout(values: Tensor, like: Tensor) -> Tensor:
    """The values with another tensor's dtype and strides."""
    expanded = 0 in like.stride() and like.numel() > 1
    empty = torch.empty_like(like) if expanded else like.new_empty_strided(like.shape, like.stride())
    return empty.copy_(values)


def _is_discrete(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.numel() <= 2 * _DISCRETE:
        return False
    few = len(tensor.reshape(-1)[:_SAMPLE].unique()) <= _DISCRETE  # sorting all of a large tensor takes long
    return few and len(tensor.unique()) <= _DISCRETE


REGIMES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor] | None, ...]] = {
    "given": (None,),
    "mirrored": (lambda x, z: -1.5 * z + 0.75, lambda x, z: -1.5 * x, lambda x, z: 0.3 + 0.5 * x),
    "large": (lambda x, z: 64 * z, lambda x, z: 64 * z.abs(), lambda x, z: 16 * z, lambda x, z: 8 * x),
    "heavy": (lambda x, z: -(z.abs() ** 3) - 0.1, lambda x, z: z**3, lambda x, z: z.abs() ** 3, lambda x, z: x**3),
    "integers": (lambda x, z: (2 * z).round(), lambda x, z: (2 * z).round().abs() + 1),
}
"""Value distributions by name, each with milder variants to fall back on where the reference leaves its domain."""
PURE = tuple(name for name in REGIMES if name != "given")


def _mixed(variant: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Every regime in a share of the rows of one input."""
    parts = [REGIMES[name][min(variant, len(REGIMES[name]) - 1)] for name in PURE]

    def transform(x: Tensor, z: Tensor) -> Tensor:
        if not x.dim():
            return parts[0](x, z)
        along = 0 if len(x) >= len(parts) else x.dim() - 1
        pieces = zip(parts, x.tensor_split(len(parts), along), z.tensor_split(len(parts), along), strict=True)
        return torch.cat([part(*piece) for part, *piece in pieces], along)

    return transform


REGIMES["mixed"] = tuple(_mixed(variant) for variant in range(4))


_WORDS = {
    "mirrored": "shifted values",
    "large": "large values",
    "heavy": "negative, heavy-tailed values",
    "integers": "small integers",
}


def lean_plans(train: tuple[bool, ...], shapes: int) -> Iterator[Plan]:
    """As `plans`, for dear published sizes: each regime at a hidden shape, all at once at the published one."""
    mode = lambda i: train[i % len(train)]
    for k in range(shapes):
        yield Plan("another shape", 2 + k, "given", mode(k))
    for k, regime in enumerate(PURE):
        yield Plan(f"another shape, {_WORDS[regime]}", 2 + k % shapes, regime, mode(k))
    yield Plan("shifted, large, heavy-tailed and integer values", 0, "mixed", mode(1))
    yield Plan("the default weights", 1, "given", mode(1))


def plans(train: tuple[bool, ...], shapes: int) -> Iterator[Plan]:
    """All cases, cheapest and most telling first; `train` are the modes to use in turn."""
    mode = lambda i: train[i % len(train)]
    yield Plan("the given inputs", 0, "given", mode(0))
    yield Plan(_WORDS["mirrored"], 0, "mirrored", mode(1))
    yield Plan(_WORDS["large"], 0, "large", mode(0))
    for k in range(shapes):
        yield Plan("another shape", 2 + k, "given" if k == 0 else "mirrored", mode(k))
    yield Plan(_WORDS["heavy"], 0, "heavy", mode(1))
    yield Plan(_WORDS["integers"], 0, "integers", mode(0))
    yield Plan("the default weights", 1, "given", mode(1))
