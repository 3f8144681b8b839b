"""Element-wise operators of two values: an input and a parameter, or two inputs or earlier values."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from drkernel.tasks.generators.graphs.dims import Dim, Shape, as_dim
from drkernel.tasks.generators.graphs.nodes import Attributes, Parameter
from drkernel.tasks.generators.graphs.op import Op
from drkernel.tasks.generators.graphs.ops.shapes import broadcast, spell

_FROM_UNIT = ("unit", "large")
_MIXED: dict[str, Any] = {"signed": True, "bounded": False}


def _own(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Parameter, ...]:
    return (Parameter("value", attributes["shape"], attributes["init"]),)


def parameter_shapes(shape: Shape) -> list[tuple[Dim, ...]]:
    """Shapes of parameters that broadcast to `shape`: one value per channel, or per column."""
    if len(shape) <= 2:
        return [shape[-1:]]
    ones = (as_dim(1),) * (len(shape) - 2)
    channel = [(shape[1], *ones), (shape[1], *ones), (as_dim(1), shape[1], *ones)]
    return [*channel, shape[-1:]] if len(shape) == 3 else channel


def _draw_shape(inits: tuple[str, ...]) -> Callable[[random.Random, Sequence[Shape]], dict[str, Any]]:
    def draw(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
        return {"shape": rng.choice(parameter_shapes(shapes[0])), "init": rng.choice(inits)}

    return draw


def _with_parameter(
    name: str, sign: str, call: str, line: str, names: tuple[str, ...], inits: tuple[str, ...], **more: Any
) -> Op:
    function = getattr(torch, call)
    return Op(
        name,
        "binary",
        lambda shapes, attributes: broadcast([shapes[0], attributes["shape"]], {}),
        lambda inputs, own, attributes: function(inputs[0], own["value"]),
        spell(f"torch.{call}({{x}}, {{value}})", "", "", (f"{{x}} {sign} {{value}}", f"{{x}} {sign} {{value}}")),
        parameters=_own,
        draw=_draw_shape(inits),
        attribute_names=names,
        triton=(line,),
        leaves=_MIXED,
        level=("chain",),
        **more,
    )  # fmt: skip


def _prelu_shape(shapes: Sequence[Shape], attributes: Attributes) -> dict[str, Any]:
    """How one slope per channel broadcasts."""
    ones = (as_dim(1),) * (len(shapes[0]) - 2)
    return {"shape": (as_dim(attributes["num_parameters"]), *ones)}


PRELU = Op(
    "prelu",
    "binary",
    lambda shapes, attributes: shapes[0],
    lambda inputs, own, attributes: F.prelu(inputs[0], own["weight"]),
    spell("", "", "nn.PReLU(num_parameters={num_parameters})") + spell("", "", "nn.PReLU({num_parameters})"),
    derive=_prelu_shape,
    draw=lambda rng, shapes: {"num_parameters": shapes[0][1]} if len(shapes[0]) > 1 else None,
    parameters=lambda shapes, attributes: (Parameter("weight", (as_dim(attributes["num_parameters"]),), "module"),),
    attribute_names=("prelu", "act"),
    triton=("v = tl.where(v > 0, v, v * u)",),
    needs_signed=True,
    sizes=_FROM_UNIT,
)

WITH_PARAMETER = (
    _with_parameter(
        "add_parameter",
        "+",
        "add",
        "v = v + u",
        ("bias", "extra_bias", "shift", "b"),
        ("randn", "randn * 0.02", "randn * 0.1", "zeros"),
        sizes=_FROM_UNIT,
    ),
    _with_parameter(
        "subtract_parameter",
        "-",
        "sub",
        "v = v - u",
        ("subtract", "bias", "offset"),
        ("randn", "randn * 0.02"),
        sizes=_FROM_UNIT,
    ),
    _with_parameter(
        "multiply_parameter",
        "*",
        "mul",
        "v = v * u",
        ("scale", "multiplier", "gamma", "gain"),
        ("randn", "ones", "rand", "randn * 0.1"),
    ),
)


def _with_value(name: str, call: str, line: str, texts: tuple[str, ...], **more: Any) -> Op:
    function = more.pop("eager", getattr(torch, call))
    text = more.pop("text", f"torch.{call}({{x}}, {{y}})")
    options: dict[str, Any] = {"leaves": _MIXED, "inputs_alike": call != "sub", "triton": (line,), **more}
    return Op(
        name,
        "binary",
        broadcast,
        lambda inputs, own, attributes: function(inputs[0], inputs[1]),
        spell(text, "", "", texts),
        arity=2,
        **options,
    )


WITH_VALUE = (
    _with_value("add", "add", "v = v + u", ("{x} + {y}",)),
    _with_value("subtract", "sub", "v = v - u", ("{x} - {y}",)),
    _with_value("multiply", "mul", "v = v * u", ("{x} * {y}",)),
    _with_value("maximum", "maximum", "v = tl.maximum(v, u)", ("torch.max({x}, {y})",), sizes=_FROM_UNIT),
    _with_value(
        "divide_by",
        "div",
        "v = v / u",
        ("{x} / ({y} + 1.0)",),
        second="rand",
        level=("single",),
        eager=lambda x, y: x / (y + 1.0),
        triton=("v = v / (u + 1.0)",),
        text="{x} / ({y} + 1.0)",
    ),
    _with_value(
        "masked_fill",
        "where",
        "",
        (),
        second="mask",
        level=("single",),
        eager=lambda x, y: x.masked_fill(y, 0.0),
        triton=("v = tl.where(u != 0, 0.0, v)",),
        text="{x}.masked_fill({y}, 0.0)",
    ),
    _with_value(
        "keep",
        "mul",
        "",
        ("{x} * {y}",),
        second="mask",
        level=("network",),
        inputs_alike=False,
        triton=("v = tl.where(u != 0, v, 0.0)",),
    ),
    _with_value("minimum", "minimum", "v = tl.minimum(v, u)", ("torch.min({x}, {y})",), sizes=_FROM_UNIT),
)
