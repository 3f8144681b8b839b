"""Reductions over any dimensions, kept or not."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from drkernel.tasks.graphs.dims import Shape, count
from drkernel.tasks.graphs.nodes import Attributes
from drkernel.tasks.graphs.op import Op, Spelling
from drkernel.tasks.graphs.ops.shapes import reduced
from drkernel.tasks.operators.operator import State
from drkernel.tasks.operators.rows import SMALL, UNIT_ONE_SIGN

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


def _one_dim(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    return draw_dims(rng, shapes, most=1)


def _spellings(call: str, methods: bool = True, several: bool = True) -> tuple[Spelling, ...]:
    """`torch.call(x, dim=..., keepdim=True)` and the method; calls of one dimension alone where `several` is false."""
    when = None if several else _single
    text = f"torch.{call}({{x}}, dim={{dims}}{{keepdim=}})"
    found = (Spelling("functional", text, when), Spelling("functional", text.replace("dim=", "", 1), when))
    return found + ((Spelling("method", f"{{x}}.{call}(dim={{dims}}{{keepdim=}})", when),) if methods else ())


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
        arguments={"dims": ("dim", "reduce_dim"), "keepdim": ("keepdim",)},
        leaves=leaves or {},
        triton=triton,
        fold=fold,
        finish=finish,
        **({"draw": draw_dims} | more),
    )


def _sum_leaves(state: State, attributes: Attributes) -> State:
    """Of values of one sign a sum is large; of values of both it is not small."""
    return State(signed=state.signed, size="large")


_EXTREMUM: dict[str, Any] = {"needs_signed": True, "needs_unbounded": True}

REDUCTIONS = (
    _reduction("sum", lambda x, d, k: x.sum(d, k), _spellings("sum"), "sum", after=_sum_leaves),
    _reduction("mean", lambda x, d, k: x.mean(d, k), _spellings("mean"), "sum", SMALL, finish=("v = v / n",)),
    _reduction("max", torch.amax, _parts("max") + _spellings("amax"), "max", UNIT_ONE_SIGN, **_EXTREMUM),
    _reduction("min", torch.amin, _parts("min") + _spellings("amin"), "min", UNIT_ONE_SIGN, **_EXTREMUM),
)
