"""Pooling: windows over the last dimensions; `fold` is max or sum (of an average)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F

from drkernel.tasks.graphs.dims import Shape, as_dim
from drkernel.tasks.graphs.nodes import Attributes
from drkernel.tasks.graphs.op import Op
from drkernel.tasks.graphs.ops.shapes import spell
from drkernel.tasks.operators.rows import SMALL

_KERNELS = (2, 2, 2, 3, 3, 4)


def _pooled(rank: int) -> Any:
    def infer(shapes: Sequence[Shape], a: Attributes) -> Shape:
        k, s, p, d = (int(a.get(name) or 0) for name in ("kernel_size", "stride", "padding", "dilation"))
        reach = max(d, 1) * (k - 1) + 1
        sizes = tuple((dim + (2 * p - reach)) // s + 1 for dim in shapes[0][-rank:])
        assert all(dim.small > 0 for dim in sizes), f"windows of {reach} in {shapes[0]}"
        return (*shapes[0][:-rank], *sizes)

    return infer


def _draw(rank: int, dilated: bool) -> Any:
    def draw(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
        kernel = rng.choice(_KERNELS)
        stride = rng.choice((kernel, kernel, 2, 1))
        found: dict[str, Any] = {"kernel_size": kernel, "stride": stride}
        found["padding"] = rng.choice((0, 0, 1)) if kernel > 2 else 0
        if dilated:
            found["dilation"] = rng.choice((1, 1, 1, 2))
        reach = found.get("dilation", 1) * (kernel - 1) + 1
        fits = len(shapes[0]) == rank + 2 and all(dim.small >= reach + 1 for dim in shapes[0][-rank:])
        return found if fits else None

    return draw


def _pool(kind: str, rank: int) -> Op:
    name, call, dilated = f"{kind}_pool{rank}d", getattr(F, f"{kind}_pool{rank}d"), kind == "max"
    names = ("kernel_size", "stride", "padding", *(("dilation",) * dilated))
    arguments = "{kernel_size}{stride=}{padding=}" + "{dilation=}" * dilated
    module = f"nn.{kind.capitalize()}Pool{rank}d"
    return Op(
        name,
        "pool",
        _pooled(rank),
        lambda inputs, own, a: call(inputs[0], **{name: a[name] for name in names}),
        spell(f"F.{name}({{x}}, {arguments})", "", f"{module}({arguments})")
        + spell("", "", f"{module}(kernel_size={arguments})"),
        defaults={"padding": 0, **({"dilation": 1} if dilated else {})},
        draw=_draw(rank, dilated),
        arguments={"kernel_size": ("kernel_size", "pool_kernel_size", "pool_size")},
        attribute_names=("pool", f"{kind}_pool", f"{kind}pool"),
        fold="max" if kind == "max" else "sum",
        leaves={"size": "unit"},
    )  # fmt: skip


def _adaptive(kind: str, rank: int) -> Op:
    """A pool whose windows follow from the size of the output; with windows of the same size, of what divides it."""
    name, call = f"adaptive_{kind}_pool{rank}d", getattr(F, f"adaptive_{kind}_pool{rank}d")
    module = f"nn.Adaptive{kind.capitalize()}Pool{rank}d"

    def infer(shapes: Sequence[Shape], a: Attributes) -> Shape:
        assert len(shapes[0]) == rank + 2, f"{name} of {shapes[0]}"
        return (*shapes[0][:-rank], *(as_dim(size) for size in _sizes(a["output_size"], rank)))

    def draw(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
        spatial = shapes[0][2:]
        if len(shapes[0]) != rank + 2 or min(dim.small for dim in spatial) < 6:
            return None
        one = (1,) * rank if rank > 1 and rng.random() < 0.5 else 1
        return {"output_size": rng.choice((one, one, 1, 2, 4))}

    return Op(
        name,
        "pool",
        infer,
        lambda inputs, own, a: call(inputs[0], a["output_size"]),
        spell(f"F.{name}({{x}}, {{output_size}})", "", f"{module}({{output_size}})"),
        draw=draw,
        attribute_names=("pool", "global_pool", f"{kind}_pool"),
        fold="max" if kind == "max" else "sum",
        leaves=dict(SMALL) if kind == "avg" else {"size": "unit"},
        needs_signed=kind == "max",
        needs_unbounded=kind == "max",
    )


def _sizes(value: Any, rank: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,) * rank


POOLS = (
    *(_pool(kind, rank) for kind in ("max", "avg") for rank in (1, 2, 3)),
    *(_adaptive(kind, rank) for kind in ("avg", "max") for rank in (1, 2, 3)),
)
