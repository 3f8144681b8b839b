"""Convolutions, plain and transposed, in one to three dimensions.

Attributes: `in_channels`, `out_channels`, `groups`, `bias`, and `kernel_size`, `stride`, `padding`, `dilation` (of a
transposed one `output_padding`), each an int, or a tuple with one number per spatial dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F

from drkernel.tasks.generators.graphs.dims import Shape, as_dim
from drkernel.tasks.generators.graphs.nodes import Attributes, Parameter
from drkernel.tasks.generators.graphs.op import Op
from drkernel.tasks.generators.graphs.ops.shapes import spell
from drkernel.tasks.generators.operators.rows import UNIT

_DEFAULTS = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "bias": True}


def per_dim(value: Any, rank: int) -> tuple[int, ...]:
    """An attribute as one number per spatial dimension."""
    return tuple(value) if isinstance(value, tuple) else (int(value),) * rank


def _infer(rank: int) -> Any:
    def infer(shapes: Sequence[Shape], a: Attributes) -> Shape:
        assert len(shapes[0]) == rank + 2, f"conv{rank}d of {shapes[0]}"
        numbers = zip(
            *(per_dim(a[name], rank) for name in ("kernel_size", "stride", "padding", "dilation")), strict=True
        )
        sizes = [
            (dim + (2 * p - d * (k - 1) - 1)) // s + 1 for dim, (k, s, p, d) in zip(shapes[0][2:], numbers, strict=True)
        ]
        assert all(dim.small > 0 for dim in sizes), f"conv{rank}d of {shapes[0]} leaves nothing"
        return (shapes[0][0], as_dim(a["out_channels"]), *sizes)

    return infer


def _parameters(rank: int) -> Any:
    def parameters(shapes: Sequence[Shape], a: Attributes) -> tuple[Parameter, ...]:
        out, kernel = as_dim(a["out_channels"]), per_dim(a["kernel_size"], rank)
        weight = Parameter("weight", (out, shapes[0][1] // as_dim(a["groups"]), *map(as_dim, kernel)), "module")
        return (weight, *((Parameter("bias", (out,), "module"),) if a["bias"] else ()))

    return parameters


def _convolution(rank: int) -> Op:
    call = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    options = "{stride=}{padding=}{dilation=}{groups=}{bias=}"
    return Op(
        f"conv{rank}d",
        "convolution",
        _infer(rank),
        lambda inputs, own, a: call(
            inputs[0], own["weight"], own.get("bias"), a["stride"], a["padding"], a["dilation"], a["groups"]
        ),
        spell("", "", f"nn.Conv{rank}d({{in_channels}}, {{out_channels}}, {{kernel_size}}{options})")
        + spell("", "", f"nn.Conv{rank}d({{in_channels}}, {{out_channels}}, kernel_size={{kernel_size}}{options})"),
        defaults=_DEFAULTS,
        derive=lambda shapes, a: {"in_channels": shapes[0][1]},
        parameters=_parameters(rank),
        arguments={name: (name,) for name in ("kernel_size", "stride", "padding", "dilation", "groups", "bias")},
        attribute_names=("conv", f"conv{rank}d", "convolution"),
        leaves=UNIT,
    )


def _transposed_sizes(rank: int) -> Any:
    names = ("kernel_size", "stride", "padding", "dilation", "output_padding")

    def infer(shapes: Sequence[Shape], a: Attributes) -> Shape:
        assert len(shapes[0]) == rank + 2, f"conv_transpose{rank}d of {shapes[0]}"
        numbers = zip(*(per_dim(a[name], rank) for name in names), strict=True)
        sizes = [
            (dim - 1) * s + (d * (k - 1) + 1 + o - 2 * p)
            for dim, (k, s, p, d, o) in zip(shapes[0][2:], numbers, strict=True)
        ]
        assert all(dim.small > 0 for dim in sizes), f"conv_transpose{rank}d of {shapes[0]} leaves nothing"
        return (shapes[0][0], as_dim(a["out_channels"]), *sizes)

    return infer


def _transposed_parameters(rank: int) -> Any:
    def parameters(shapes: Sequence[Shape], a: Attributes) -> tuple[Parameter, ...]:
        out, kernel = as_dim(a["out_channels"]), per_dim(a["kernel_size"], rank)
        weight = Parameter("weight", (shapes[0][1], out // as_dim(a["groups"]), *map(as_dim, kernel)), "module")
        return (weight, *((Parameter("bias", (out,), "module"),) if a["bias"] else ()))

    return parameters


def _transposed(rank: int) -> Op:
    call = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    options = "{stride=}{padding=}{output_padding=}{groups=}{bias=}{dilation=}"
    module = f"nn.ConvTranspose{rank}d({{in_channels}}, {{out_channels}}, "
    names = ("kernel_size", "stride", "padding", "output_padding", "groups", "bias", "dilation")
    return Op(
        f"conv_transpose{rank}d",
        "convolution",
        _transposed_sizes(rank),
        lambda inputs, own, a: call(
            inputs[0],
            own["weight"],
            own.get("bias"),
            a["stride"],
            a["padding"],
            a["output_padding"],
            a["groups"],
            a["dilation"],
        ),
        spell("", "", module + "{kernel_size}" + options + ")")
        + spell("", "", module + "kernel_size={kernel_size}" + options + ")"),
        defaults={**_DEFAULTS, "output_padding": 0},
        derive=lambda shapes, a: {"in_channels": shapes[0][1]},
        parameters=_transposed_parameters(rank),
        arguments={name: (name,) for name in names},
        attribute_names=("conv_transpose", "conv", f"conv_transpose{rank}d", "deconv"),
        leaves=UNIT,
    )


CONVOLUTIONS = (*(_convolution(rank) for rank in (1, 2, 3)), *(_transposed(rank) for rank in (1, 2, 3)))
