"""Shape inference and small helpers that several kinds of operators share."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from drkernel.tasks.generators.graphs.dims import Dim, Shape, as_dim, is_one, same
from drkernel.tasks.generators.graphs.nodes import Attributes
from drkernel.tasks.generators.graphs.op import Draw, Spelling


def unchanged(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """The shape of the first input."""
    return shapes[0]


def scalar(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    return ()


def broadcast(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """The shape that PyTorch's broadcasting gives all inputs."""
    rank = max(map(len, shapes))
    padded = [(as_dim(1),) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(_widest(dims) for dims in zip(*padded, strict=True))


def _widest(dims: Sequence[Dim]) -> Dim:
    wide = [dim for dim in dims if not is_one(dim)] or [dims[0]]
    assert all(same(dim, wide[0]) for dim in wide), f"sizes {dims} do not broadcast"
    return wide[0]


def reduced(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """The shape without the attribute `dims`, or with ones in their place."""
    shape, dims = shapes[0], attributes["dims"]
    kept = lambda place, dim: as_dim(1) if place in dims else dim
    if attributes["keepdim"]:
        return tuple(kept(place, dim) for place, dim in enumerate(shape))
    return tuple(dim for place, dim in enumerate(shape) if place not in dims)


def joined(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """The shape of all inputs behind each other along the attribute `dim`."""
    shape, dim = list(shapes[0]), attributes["dim"]
    for other in shapes[1:]:
        shape[dim] = shape[dim] + other[dim]
    return tuple(shape)


def scaled(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """The shape with places `scale_factor` times as many along each spatial dimension."""
    return (*shapes[0][:2], *(dim * attributes["scale_factor"] for dim in shapes[0][2:]))


_USUAL = 0.45
"""The share of numbers that are those which everyone takes."""


def number(rng: random.Random, usual: Sequence[float]) -> float:
    """One of the usual numbers, or another one between the least and the largest of them, of one to four digits."""
    least, most = min(usual), max(usual)
    if rng.random() < _USUAL or least == most or not all(isinstance(value, float) for value in usual):
        return rng.choice(usual)
    digits = rng.choice((1, 2, 2, 3, 4))
    if least > 0 and most > 20 * least:
        drawn = math.exp(rng.uniform(math.log(least), math.log(most)))
    else:
        drawn = rng.uniform(least, most)
    found = float(f"{drawn:.{digits}g}")
    return found if found and least <= found <= most else rng.choice(usual)


def small_number(rng: random.Random, usual: Sequence[float]) -> float:
    """An epsilon: one of the usual ones, or another one."""
    return (
        rng.choice(usual) if rng.random() < _USUAL else float(f"{10 ** rng.uniform(-8, -2):.{rng.choice((1, 1, 2))}g}")
    )


def one_of(**choices: tuple) -> Draw:
    """Draws each attribute from its choices, or near them; see `number`."""
    return lambda rng, shapes: {name: number(rng, values) for name, values in choices.items()}


def spell(functional: str = "", method: str = "", module: str = "", manual: str | Sequence[str] = ()) -> tuple:
    """Spellings by style; several by hand."""
    manuals = (manual,) if isinstance(manual, str) else manual
    pairs: list[tuple[Any, str]] = [("functional", functional), ("method", method), ("module", module)]
    return tuple(Spelling(style, text) for style, text in [*pairs, *(("manual", m) for m in manuals)] if text)


def torch_and_method(call: str, arguments: str = "") -> tuple[Spelling, ...]:
    """`torch.call(x, ...)` and `x.call(...)`."""
    bare = arguments.removeprefix(", ")
    return spell(f"torch.{call}({{x}}{arguments})", f"{{x}}.{call}({bare})")
