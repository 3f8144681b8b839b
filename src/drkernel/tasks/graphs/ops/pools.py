"""Pooling: windows over the last dimensions; `fold` is max or sum (of an average)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F

from drkernel.tasks.graphs.dims import Shape
from drkernel.tasks.graphs.nodes import Attributes
from drkernel.tasks.graphs.op import Op
from drkernel.tasks.graphs.ops.shapes import spell

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


POOLS = (*(_pool(kind, rank) for kind in ("max", "avg") for rank in (1, 2, 3)),)
