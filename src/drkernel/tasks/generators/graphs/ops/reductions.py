"""Reductions over any dimensions, kept or not."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from drkernel.tasks.generators.graphs.dims import Shape, count
from drkernel.tasks.generators.graphs.nodes import Attributes
from drkernel.tasks.generators.graphs.op import Op, Spelling, Style
from drkernel.tasks.generators.graphs.ops.shapes import reduced
from drkernel.tasks.generators.operators.operator import State
from drkernel.tasks.generators.operators.rows import LARGE_ONE_SIGN, SMALL, UNIT_ONE_SIGN

_LEAST = 6
"""The least number of elements, at small sizes, that become one."""


def draw_dims(rng: random.Random, shapes: Sequence[Shape], most: int = 4) -> dict[str, Any] | None:
    """Dimensions whose elements are joined, and whether ones stay in their place."""
    shape = shapes[0]
    number = rng.choice((1, 1, 1, 2, 2, 3))
    found = [
        dims
        for k in (number, 1, 2)
        for dims in combinations(range(len(shape)), min(k, most))
        if dims and count(tuple(shape[d] for d in dims), small=True) >= _LEAST and len(dims) < len(shape)
    ]
    return {"dims": rng.choice(found), "keepdim": rng.random() < 0.5} if found else None


def _draw_any(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    """All dimensions in a few cases."""
    if rng.random() < 0.07 or len(shapes[0]) == 1:
        return {"dims": tuple(range(len(shapes[0]))), "keepdim": False}
    return draw_dims(rng, shapes)


def _one_dim(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    return draw_dims(rng, shapes, most=1)


def _spellings(call: str, methods: bool = True, several: bool = True) -> tuple[Spelling, ...]:
    """`torch.call(x, dim=..., keepdim=True)` and the method; calls of one dimension alone where `several` is false."""
    when = None if several else _single
    text = f"torch.{call}({{x}}, dim={{dims}}{{keepdim=}})"
    found = (Spelling("functional", text, when), Spelling("functional", text.replace("dim=", "", 1), when))
    return found + ((Spelling("method", f"{{x}}.{call}(dim={{dims}}{{keepdim=}})", when),) if methods else ())


def _whole(call: str) -> tuple[Spelling, ...]:
    """Of all elements; four times, so that it is likely where it is possible."""
    one = Spelling("functional", f"torch.{call}({{x}})", lambda a: a["whole"])
    return (one, Spelling("method", f"{{x}}.{call}()", lambda a: a["whole"])) * 4


def _single(attributes: Attributes) -> bool:
    return len(attributes["dims"]) == 1


def _parts(call: str) -> tuple[Spelling, ...]:
    """`torch.max(x, dim=1)` gives values and indices."""
    text = f"torch.{call}({{x}}, dim={{dims}}{{keepdim=}})"
    texts = (f"{text}[0]", f"{text}.values", f"{{x}}.{call}(dim={{dims}}{{keepdim=}})[0]")
    return tuple(Spelling("functional", text, _single) for text in texts)


def _reduction(
    name: str,
    eager: Callable[..., Tensor],
    spellings: tuple[Spelling, ...],
    fold: str,
    leaves: dict[str, Any] | None = None,
    triton: tuple[str, ...] = (),
    finish: tuple[str, ...] = (),
    **more: Any,
) -> Op:
    return Op(
        name,
        "reduction",
        reduced,
        lambda inputs, own, attributes: eager(inputs[0], attributes["dims"], attributes["keepdim"]),
        spellings,
        defaults={"keepdim": False},
        derive=lambda shapes, a: {"whole": len(a["dims"]) == len(shapes[0]) and not a["keepdim"]},
        arguments={"dims": ("dim", "reduce_dim", "axis", "dims"), "keepdim": ("keepdim",)},
        leaves=leaves or {},
        triton=triton,
        fold=fold,
        finish=finish,
        **({"draw": _draw_any if fold in ("sum", "max", "min") else draw_dims} | more),
    )


def _sum_leaves(state: State, attributes: Attributes) -> State:
    """Of values of one sign a sum is large; of values of both it is not small."""
    return State(signed=state.signed, size="large")


_EXTREMUM: dict[str, Any] = {"needs_signed": True, "needs_unbounded": True}

_SQUARE, _ABS = ("v = v * v",), ("v = tl.abs(v)",)
_NORMS = (
    "torch.linalg.vector_norm({x}, dim={dims}{keepdim=})",
    "torch.norm({x}, p=2, dim={dims}{keepdim=})",
)


def _texts(*texts: str, style: Style = "manual") -> tuple[Spelling, ...]:
    return tuple(Spelling(style, text) for text in texts)


def _unbiased(call: str) -> tuple[Spelling, ...]:
    """Of a variance, `unbiased` and what replaced it."""
    text = f"torch.{call}({{x}}, dim={{dims}}{{keepdim=}}, unbiased={{unbiased}})"
    plain = f"torch.{call}({{x}}, dim={{dims}}{{keepdim=}})"
    return (Spelling("functional", text), Spelling("functional", plain, lambda a: a["unbiased"]))


def _draw_unbiased(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    found = draw_dims(rng, shapes)
    return found and {**found, "unbiased": rng.random() < 0.7}


def _spread(name: str, call: str, finish: tuple[str, ...]) -> Op:
    """Variance and deviation: the fold is of squared differences from the mean."""
    found = _reduction(name, torch.sum, _unbiased(call), "variance", UNIT_ONE_SIGN, finish=finish, draw=_draw_unbiased)
    eager = lambda inputs, own, a: getattr(torch, call)(inputs[0], a["dims"], a["unbiased"], a["keepdim"])
    return replace(found, eager=eager, defaults={"keepdim": False, "unbiased": True})


REDUCTIONS = (
    _reduction("sum", lambda x, d, k: x.sum(d, k), _spellings("sum") + _whole("sum"), "sum", after=_sum_leaves),
    _reduction(
        "mean",
        lambda x, d, k: x.mean(d, k),
        _spellings("mean") + _whole("mean"),
        "sum",
        SMALL,
        finish=("v = v / n",),
    ),
    _reduction(
        "max", torch.amax, _parts("max") + _spellings("amax") + _whole("max"), "max", UNIT_ONE_SIGN, **_EXTREMUM
    ),
    _reduction(
        "min", torch.amin, _parts("min") + _spellings("amin") + _whole("min"), "min", UNIT_ONE_SIGN, **_EXTREMUM
    ),
    _reduction(
        "logsumexp", torch.logsumexp, _spellings("logsumexp"), "logsumexp", LARGE_ONE_SIGN, sizes=("small", "unit")
    ),
    _spread("var", "var", ("v = v / (n - correction)",)),
    _spread("std", "std", ("v = tl.sqrt(v / (n - correction))",)),
    _reduction(
        "norm",
        lambda x, d, k: torch.linalg.vector_norm(x, dim=d, keepdim=k),
        (
            Spelling("functional", "torch.norm({x}, dim={dims}{keepdim=})", lambda a: len(a["dims"]) < 3),
            *_texts(*_NORMS, style="functional"),
            *_texts("torch.sqrt(torch.sum({x} ** 2, dim={dims}{keepdim=}))"),
        ),
        "sum",
        LARGE_ONE_SIGN,
        _SQUARE,
        ("v = tl.sqrt(v)",),
        superfluous_before=("abs",),
    ),
    _reduction(
        "norm1",
        lambda x, d, k: x.abs().sum(d, k),
        _texts("torch.norm({x}, p=1, dim={dims}{keepdim=})", style="functional")
        + _texts("torch.sum(torch.abs({x}), dim={dims}{keepdim=})", "{x}.abs().sum(dim={dims}{keepdim=})"),
        "sum",
        LARGE_ONE_SIGN,
        _ABS,
        superfluous_before=("abs",),
    ),
    _reduction(
        "mean_abs",
        lambda x, d, k: x.abs().mean(d, k),
        _texts("torch.mean(torch.abs({x}), dim={dims}{keepdim=})", "{x}.abs().mean(dim={dims}{keepdim=})"),
        "sum",
        UNIT_ONE_SIGN,
        _ABS,
        ("v = v / n",),
        superfluous_before=("abs",),
    ),
    _reduction(
        "mean_square",
        lambda x, d, k: x.square().mean(d, k),
        _texts("torch.mean({x} ** 2, dim={dims}{keepdim=})", "{x}.pow(2).mean(dim={dims}{keepdim=})"),
        "sum",
        UNIT_ONE_SIGN,
        _SQUARE,
        ("v = v / n",),
        superfluous_before=("abs",),
    ),
    _reduction(
        "sum_square",
        lambda x, d, k: x.square().sum(d, k),
        _texts("torch.sum({x} ** 2, dim={dims}{keepdim=})", "({x} * {x}).sum(dim={dims}{keepdim=})"),
        "sum",
        LARGE_ONE_SIGN,
        _SQUARE,
        superfluous_before=("abs",),
    ),
    _reduction(
        "sum_exp",
        lambda x, d, k: x.exp().sum(d, k),
        _texts("torch.sum(torch.exp({x}), dim={dims}{keepdim=})", "{x}.exp().sum(dim={dims}{keepdim=})"),
        "sum",
        LARGE_ONE_SIGN,
        ("v = tl.exp(v)",),
        sizes=("unit",),
    ),
    *(
        _reduction(
            name,
            lambda x, d, k, name=name: getattr(torch, name)(x, d[0], k),
            _spellings(name, several=False),
            name,
            draw=_one_dim,
            output="int64",
            level=("single",),
        )
        for name in ("argmax", "argmin")
    ),
    _reduction(
        "prod",
        lambda x, d, k: torch.prod(x, d[0], k),
        _spellings("prod", several=False),
        "prod",
        draw=_one_dim,
        level=("single",),
        tame="one",
    ),
)
