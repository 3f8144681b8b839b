"""Pooling: windows over the last dimensions; `fold` is max or sum (of an average)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F

from drkernel.tasks.generators.graphs.dims import Shape, as_dim
from drkernel.tasks.generators.graphs.nodes import Attributes
from drkernel.tasks.generators.graphs.op import Op, Spelling
from drkernel.tasks.generators.graphs.ops.convolutions import per_dim
from drkernel.tasks.generators.graphs.ops.shapes import spell
from drkernel.tasks.generators.operators.rows import SMALL

_KERNELS = (2, 2, 2, 3, 3, 3, 4, 5, 6, 7)


def _pooled(rank: int) -> Any:
    def infer(shapes: Sequence[Shape], a: Attributes) -> Shape:
        names = ("kernel_size", "stride", "padding", "dilation")
        numbers = zip(*(per_dim(a.get(name, 1), rank) for name in names), strict=True)
        sizes = tuple(
            (dim + (2 * p - d * (k - 1) - 1)) // s + 1
            for dim, (k, s, p, d) in zip(shapes[0][-rank:], numbers, strict=True)
        )
        assert all(dim.small > 0 for dim in sizes), f"windows of {a['kernel_size']} in {shapes[0]}"
        return (*shapes[0][:-rank], *sizes)

    return infer


def _window(rng: random.Random, dilated: bool, kernels: Sequence[int]) -> dict[str, int]:
    """The window along one dimension."""
    kernel = rng.choice(kernels)
    found = {"kernel_size": kernel, "stride": rng.choice((kernel, kernel, 1, 2, 3, 4))}
    found["padding"] = rng.choice((0, 0, *range(1, min(kernel // 2, 3) + 1)))
    return found | ({"dilation": rng.choice((1, 1, 1, 2, 3))} if dilated else {})


def _draw(rank: int, dilated: bool) -> Any:
    def draw(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
        if len(shapes[0]) != rank + 2:
            return None
        uneven = rank > 1 and rng.random() < 0.25
        drawn = [_window(rng, dilated, _KERNELS[: 8 - rank] if rank == 3 else _KERNELS) for _ in range(rank)]
        drawn = drawn if uneven else drawn[:1] * rank
        if any(
            dim.small + 2 * w["padding"] <= w.get("dilation", 1) * (w["kernel_size"] - 1) + 1
            for dim, w in zip(shapes[0][-rank:], drawn, strict=True)
        ):
            return None
        found: dict[str, Any] = {name: tuple(w[name] for w in drawn) if uneven else drawn[0][name] for name in drawn[0]}
        return {name: value[0] if uneven and len(set(value)) == 1 else value for name, value in found.items()}

    return draw


def _tiles(attributes: Attributes) -> bool:
    """Whether the stride is what it is where none is given."""
    return bool(attributes["stride"] == attributes["kernel_size"])


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
        + spell("", "", f"{module}(kernel_size={arguments})")
        + (
            Spelling("module", f"{module}({arguments.replace('{stride=}', '')})", _tiles),
            Spelling("functional", f"F.{name}({{x}}, {arguments.replace('{stride=}', '')})", _tiles),
            Spelling("module", f"{module}({arguments.replace('{stride=}', ', {stride}', 1)})"),
        ),
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
        uneven = tuple(rng.randrange(1, 6) for _ in range(rank)) if rank > 1 else 3
        return {"output_size": rng.choice((one, one, 1, rng.randrange(2, 8), uneven))}

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
