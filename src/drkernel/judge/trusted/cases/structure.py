"""What inputs are made of: other values enter where `get_inputs` draws its random numbers, and nowhere else.

A task's inputs may be triangular, symmetric, sorted, one-hot, probabilities, unit vectors, a mask and its lengths, or
one the transpose of another. An honest kernel may use that. So no regime and no perturbation writes into an input. Each
changes the numbers that `torch.rand`, `torch.randn` and their like give to `get_inputs`, whose own code then makes the
inputs of them. What that code makes of any random numbers holds by construction; what it makes of none stays as it is.

`observe` finds out once per task what becomes of each draw. `draw` calls `get_inputs` with draws that are changed. Code
that looks at its draws may go on to draw more often (until one is large enough, for each of a random number of layers).
It is observed under the very seed then, and the draws that it looks at are left as they are.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.judge.trusted.outputs import leaves
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError

_CONTINUOUS = {"rand": (0.0, 1.0), "rand_like": (0.0, 1.0), "uniform": None, "uniform_": None}
_SKEWED = {"exponential_", "log_normal_", "_standard_gamma"}
"""Draws of positive numbers without an upper bound."""
_NORMAL = {"randn", "randn_like", "normal_", "normal", "normal_functional"}
_WHOLE = {
    "randint", "randint_like", "randperm", "random_", "bernoulli_", "bernoulli", "multinomial", "poisson", "geometric_",
    "binomial", "_sample_dirichlet", "cauchy_",
}  # fmt: skip
"""Draws that stay as they are, or are exchanged among themselves."""
_UNIFORM = {"randint", "randint_like", "random_"}
"""Those of which the range is known, from which other numbers may be taken."""
_CREATED_IN_PLACE = {
    "uniform_", "normal_", "random_", "bernoulli_", "exponential_", "log_normal_", "geometric_", "cauchy_",
}  # fmt: skip

SELECTING = {
    "clone", "_to_copy", "copy_", "tril", "triu", "cat", "stack", "index", "index_select", "gather", "sort", "flip",
    "roll", "repeat", "masked_fill", "masked_fill_", "where", "constant_pad_nd", "diag_embed", "contiguous", "tril_",
    "triu_", "topk", "_unsafe_view", "lift_fresh", "detach", "fill_", "zero_", "diagonal_copy", "new_empty_strided",
    "select_scatter", "index_put_", "slice_scatter", "diagonal_scatter", "repeat_interleave", "cummax",
    "split_with_sizes_copy", "unsafe_split",
}  # fmt: skip
"""Operators whose output holds values of their input, and perhaps constants."""
_SCALING = {"mul", "mul_", "div", "div_"}
_READING = {"_local_scalar_dense", "is_nonzero", "equal", "allclose"}
"""Operators that tell the code a value."""


_SEVERAL = 32
"""Distinct numbers of which an input is no mask and has no levels."""


class Use(enum.IntEnum):
    """What becomes of a draw, from the freest to the least."""

    VALUES = 0
    """Its values are those of an input, perhaps scaled: any numbers will do, of either sign."""
    NORMAL = 1
    """An input is computed from it. It is normally distributed, so that code must expect any numbers."""
    RANGE = 2
    """An input is computed from it, and it lies in a range."""
    CHOICE = 3
    """Indices, masks, lengths: as they are drawn, or exchanged among themselves, or others of the same range."""


@dataclass(frozen=True)
class Source:
    """One draw of random numbers in `get_inputs`, in the order of its calls."""

    use: Use
    low: float
    high: float
    """Its range; of normally distributed numbers, three standard deviations to both sides; of whole ones, the first and
    the last of them, and twice the same where it is not known."""
    normal: bool = False
    """Whether its numbers are normally distributed."""
    name: str = ""
    """The operator that draws it."""
    read: bool = False
    """Whether the code of `get_inputs` is told one of its values, or what follows from it."""


Change = Callable[[Tensor, Source, int], None]
"""Changes the numbers of a draw in place: the numbers, what becomes of them, and which draw it is."""


def observe(reference: Reference, seed: int) -> tuple[Source, ...]:
    """The draws of a task's `get_inputs`, called once.

    Raises:
        DrKernelError: from `get_inputs`.
    """
    mode = _Observing()
    with mode:
        inputs = reference.inputs(seed)
    return mode.sources([value for _, value in leaves(inputs) if isinstance(value, Tensor)])


def draw(reference: Reference, sources: Sequence[Source], seed: int, change: Change | None) -> list:
    """`get_inputs()` under a seed, with changed draws.

    Raises:
        Unsteady: it draws other numbers where these are changed, though those that it looks at are not.
    """
    if change is None or not sources:
        return reference.inputs(seed)
    mode = _Changing(sources, change)
    with mode:
        inputs = reference.inputs(seed)
    if mode.as_expected():
        return inputs
    own = [replace(source, use=Use.CHOICE) if source.read else source for source in observe(reference, seed)]
    mode = _Changing(own, change)
    with mode:
        inputs = reference.inputs(seed)
    if mode.as_expected():
        return inputs
    raise Unsteady(
        f"task {reference.task.id}: how often get_inputs draws random numbers hangs on drawn values that it takes out "
        "of torch (numpy): draw as often in each call, or decide by item()"
    )


class Unsteady(DrKernelError):
    """The draws of a task's `get_inputs` cannot be changed, since others follow then."""


def touch_constants(reference: Reference, inputs: list, seed: int) -> None:
    """Changes one number of usual size or more in each input that `get_inputs` makes without random numbers: what
    follows from it may not be kept from another call. Masks, indices and levels stay: inputs of few distinct or of
    whole numbers."""
    others, touched = (dict(leaves(tree)) for tree in (reference.inputs(seed), inputs))
    random = Random(seed)
    for path, value in touched.items():
        other = others.get(path)
        if isinstance(value, Tensor) and isinstance(other, Tensor) and torch.equal(value, other):
            _touch(value, random)


def _touch(value: Tensor, random: Random) -> None:
    finite = value[value.isfinite() & (value != 0)] if value.is_floating_point() else value[:0]
    if len(finite) < _SEVERAL or len(finite.unique()) < _SEVERAL or torch.equal(finite, finite.round()):
        return
    places = (value.isfinite() & (value.abs() >= finite.double().square().mean().sqrt())).nonzero()
    place = tuple(places[random.randrange(len(places))].tolist())
    is_symmetric = value.dim() == 2 and value.shape[0] == value.shape[1] and torch.equal(value, value.T)
    for where in {place, place[::-1]} if is_symmetric else {place}:
        value[where] *= 1.5


class _Changing(TorchDispatchMode):
    def __init__(self, sources: Sequence[Source], change: Change):
        super().__init__()
        self._sources, self._change, self._names = sources, change, list[str]()

    def as_expected(self) -> bool:
        """Whether the draws were those of the sources."""
        return self._names == [source.name for source in self._sources]

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if _draws(name := func.overloadpacket.__name__) and not output.is_meta:
            number = len(self._names)
            if number < len(self._sources) and name == self._sources[number].name:
                self._change(output, self._sources[number], number)
            self._names.append(name)
        return output


class _Observing(TorchDispatchMode):
    """Follows each draw through the operators of `get_inputs`, by the memory that its values reach."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Tensor] = []  # memory that is free again would be taken for what lay there before
        self._uses: dict[int, dict[int, tuple[Use, bool]]] = {}
        """By memory: of each draw that went into it, its use, and whether something was added to it."""
        self._found: list[Source] = []
        self._read: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        inputs = [t for _, t in leaves([list(args), kwargs]) if isinstance(t, Tensor)]
        outputs = func(*args, **kwargs)
        results = [t for _, t in leaves(outputs) if isinstance(t, Tensor)]
        if any(t.is_meta for t in results):  # no values: of a model that is asked for the shape of its output
            return outputs
        self._kept += results
        if name in _READING:
            self._read.update(number for tensor in inputs for number in self._uses.get(_memory(tensor), {}))
        if _draws(name):
            self._note_draw(name, args, results[0])
        elif not func.is_view:
            self._follow(name, args, inputs, results)
        return outputs

    def _note_draw(self, name: str, args: tuple, result: Tensor) -> None:
        number = len(self._found)
        self._found.append(_source(name, args, result))
        known = {} if name in _CREATED_IN_PLACE and _covers(result) else self._uses.get(_memory(result), {})
        self._uses[_memory(result)] = {**known, number: (self._found[number].use, False)}

    def _follow(self, name: str, args: tuple, inputs: list[Tensor], results: list[Tensor]) -> None:
        drawn: dict[int, tuple[Use, bool]] = {}
        mixing = sum(bool(self._uses.get(_memory(t))) for t in inputs) > 1
        for tensor in inputs:
            for number, (use, computed) in self._uses.get(_memory(tensor), {}).items():
                keeps = name in SELECTING or (name in _SCALING and not mixing and _positive(args[1:]))
                before = drawn.get(number, (use, computed))
                drawn[number] = min(use, before[0]), computed or before[1] or not keeps
        for result in results:
            found = drawn if result.is_floating_point() else dict.fromkeys(drawn, (Use.CHOICE, True))
            self._uses[_memory(result)] = {**self._uses.get(_memory(result), {}), **found}

    def sources(self, inputs: list[Tensor]) -> tuple[Source, ...]:
        """The draws with what became of them in these inputs."""
        floats = [t for t in inputs if t.is_floating_point()]
        judged = (self._judged(number, source, floats) for number, source in enumerate(self._found))
        return tuple(replace(source, read=number in self._read) for number, source in enumerate(judged))

    def _judged(self, number: int, source: Source, floats: list[Tensor]) -> Source:
        reached = [(t, self._uses[_memory(t)][number]) for t in floats if number in self._uses.get(_memory(t), {})]
        reached = [(t, found) for t, found in reached if found[0] != Use.CHOICE]
        if source.use == Use.CHOICE or not reached:
            return replace(source, use=Use.CHOICE)
        computed = [t for t, (_, computed) in reached if computed]
        use = Use.VALUES if not computed else Use.NORMAL if source.normal else Use.RANGE
        return replace(source, use=use)


def _draws(name: str) -> bool:
    return name in _CONTINUOUS or name in _NORMAL or name in _WHOLE or name in _SKEWED


def _source(name: str, args: tuple, result: Tensor) -> Source:
    if name in _NORMAL:
        numbers = result.double().reshape(-1)
        centre, spread = (float(numbers.mean()), float(numbers.std())) if len(numbers) > 1 else (0.0, 1.0)
        return Source(Use.NORMAL, centre - 3 * spread, centre + 3 * spread, True, name)
    if name in _CONTINUOUS:
        limits = _CONTINUOUS[name] or (*(float(a) for a in args[1:3]), *((0.0, 1.0)[len(args[1:3]) :]))
        return Source(Use.RANGE, limits[0], limits[1], name=name)
    if name in _SKEWED:
        return Source(Use.RANGE, 0.0, float(result.max()) if result.numel() else 1.0, name=name)
    return Source(Use.CHOICE, *_ends(name, args), name=name)


def _ends(name: str, args: tuple) -> tuple[float, float]:
    """The first and the last of the whole numbers that a draw has equal chances for; twice the same for others."""
    bounds = tuple(itertools.takewhile(lambda a: isinstance(a, int), args[name != "randint" :]))
    if name not in _UNIFORM or len(bounds) not in (1, 2):
        return 0.0, 0.0
    return float(bounds[0] if len(bounds) == 2 else 0), float(bounds[-1] - 1)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _covers(tensor: Tensor) -> bool:
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def _positive(values: tuple) -> bool:
    """Whether a factor is a positive number."""
    numbers = [float(v) for v in values if isinstance(v, (int, float)) or (isinstance(v, Tensor) and v.numel() == 1)]
    return len(numbers) == len(values) == 1 and numbers[0] > 0 and math.isfinite(numbers[0])
