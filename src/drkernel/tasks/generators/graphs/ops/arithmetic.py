"""Element-wise arithmetic of one input, with constants or without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from drkernel.tasks.generators.graphs.op import Op
from drkernel.tasks.generators.graphs.ops.shapes import one_of, spell, torch_and_method
from drkernel.tasks.generators.graphs.ops.unary import (
    BOUNDED,
    EXPM1,
    FROM_UNIT,
    LOG1P,
    POSITIVE,
    POSITIVE_AND_BOUNDED,
    UNIT,
    op,
)
from drkernel.tasks.generators.operators.operator import State


def _shrunk(state: State, by: float) -> State:
    """Large values of both signs that are divided by a large number are of usual size."""
    return replace(state, size="unit") if by >= 8 and state.signed and state.size == "large" else state


def _constant(
    name: str, template: str | tuple[str, ...], triton: str, eager: Callable, names: tuple[str, ...], **more: Any
) -> Op:
    """Arithmetic with a constant, that may be an attribute of the module."""
    values = more.pop("values")
    return op(
        name,
        lambda x, value: eager(x, value),
        spell(manual=template) + more.pop("also", ()),
        (triton,),
        draw=one_of(value=values),
        arguments={"value": names},
        **more,
    )


ARITHMETIC = (
    _constant(
        "scale",
        "{x} * {value}",
        "v = v * {value}",
        torch.mul,
        ("scaling_factor", "scale_factor", "scale", "multiplier"),
        after=lambda state, a: _shrunk(state, 1 / a["value"]),
        values=(0.5, 2.0, 0.1, 1.5, 3.0, 0.25),
        also=spell("torch.mul({x}, {value})", "{x}.mul({value})", "", "{value} * {x}"),
    ),
    _constant(
        "add_constant",
        "{x} + {value}",
        "v = v + {value}",
        torch.add,
        ("add_value", "constant", "offset", "shift"),
        values=(0.5, 1.0, 2.0, 0.1),
        also=spell("torch.add({x}, {value})"),
        sizes=FROM_UNIT,
    ),
    _constant(
        "subtract_constant",
        "{x} - {value}",
        "v = v - {value}",
        torch.sub,
        ("subtract_value", "subtract_constant", "offset"),
        values=(0.5, 0.2, 1.0, 2.0),
        also=spell("torch.sub({x}, {value})"),
        sizes=FROM_UNIT,
        leaves={"signed": True},
    ),
    _constant(
        "divide",
        "{x} / {value}",
        "v = v / {value}",
        torch.div,
        ("divisor", "temperature", "divide_by", "denom"),
        after=lambda state, a: _shrunk(state, a["value"]),
        values=(2.0, 10.0, 1.5, 4.0),
        also=spell("torch.div({x}, {value})", "{x}.div({value})"),
    ),
    _constant(
        "subtract_from",
        "{value} - {x}",
        "v = {value} - v",
        lambda x, a: a - x,
        ("constant", "value", "target"),
        values=(1.0, 0.5, 2.0),
        sizes=FROM_UNIT,
        leaves={"signed": True},
    ),
    _constant(
        "clamp_min",
        ("torch.clamp({x}, min={value})", "{x}.clamp_min({value})"),
        "v = tl.maximum(v, {value})",
        lambda x, a: x.clamp_min(a),
        ("min_value", "min_val", "clamp_min"),
        values=(-0.5, 0.1, -1.0, 0.25),
        also=spell("", "{x}.clamp(min={value})", "", "torch.max({x}, torch.tensor({value}))"),
        needs_signed=True,
        sizes=UNIT,
    ),
    _constant(
        "clamp_max",
        ("torch.clamp({x}, max={value})", "{x}.clamp_max({value})"),
        "v = tl.minimum(v, {value})",
        lambda x, a: x.clamp_max(a),
        ("max_value", "max_val", "constant"),
        values=(0.5, 0.25, 1.0),
        also=spell("", "{x}.clamp(max={value})", "", "torch.min({x}, torch.tensor({value}))"),
        needs_signed=True,
        sizes=UNIT,
    ),
    op("sin", torch.sin, torch_and_method("sin")),
    op("cos", torch.cos, torch_and_method("cos")),
    op("abs", torch.abs, torch_and_method("abs")),
    op(
        "square",
        torch.square,
        torch_and_method("square") + spell("torch.pow({x}, 2)", "{x}.pow(2)", "", ("{x} ** 2", "{x} * {x}")),
    ),
    op(
        "cube",
        lambda x: x**3,
        spell("torch.pow({x}, 3)", "{x}.pow(3)", "", ("{x} ** 3", "{x} * {x} * {x}")),
        ("v = v * v * v",),
        sizes=UNIT,
    ),
    op("negative", torch.neg, spell("torch.neg({x})", "", "", "-{x}"), ("v = -v",)),
    op(
        "exp",
        torch.exp,
        torch_and_method("exp"),
        ("v = tl.exp(v)",),
        sizes=UNIT,
        leaves=POSITIVE,
        needs_signed=True,
    ),
    op(
        "exp_negative",
        lambda x: torch.exp(-x),
        spell("torch.exp(-{x})", "", "", "(-{x}).exp()"),
        ("v = tl.exp(-v)",),
        sizes=UNIT,
        leaves=POSITIVE,
    ),
    op(
        "expm1",
        torch.expm1,
        torch_and_method("expm1"),
        (f"v = {EXPM1.format(v='v')}",),
        sizes=UNIT,
        needs_signed=True,
    ),
    op(
        "gaussian",
        lambda x: torch.exp(-(x**2)),
        spell("torch.exp(-torch.square({x}))", "", "", ("torch.exp(-({x} ** 2))", "torch.exp(-{x} * {x})")),
        ("v = tl.exp(-v * v)",),
        sizes=UNIT,
        leaves=POSITIVE_AND_BOUNDED,
    ),
    op(
        "log1p",
        torch.log1p,
        torch_and_method("log1p"),
        ("u = 1 + v", LOG1P),
        needs_positive=True,
        sizes=UNIT,
    ),
    op(
        "log_abs",
        lambda x: torch.log(1 + x.abs()),
        spell("torch.log1p(torch.abs({x}))", "{x}.abs().log1p()"),
        ("v = tl.abs(v)", "u = 1 + v", LOG1P),
        sizes=UNIT,
        leaves=POSITIVE,
    ),
    op(
        "sqrt_abs",
        lambda x: x.abs().sqrt(),
        spell("torch.sqrt(torch.abs({x}))", "{x}.abs().sqrt()"),
        ("v = tl.sqrt(tl.abs(v))",),
        sizes=FROM_UNIT,
        leaves=POSITIVE,
        level=("single",),
    ),
    op(
        "sqrt",
        lambda x, eps: torch.sqrt(x + eps),
        spell("torch.sqrt({x} + {eps})", "({x} + {eps}).sqrt()"),
        ("v = tl.sqrt(v + {eps})",),
        draw=one_of(eps=(1e-3, 1e-2)),
        needs_positive=True,
        sizes=FROM_UNIT,
    ),
    op(
        "rsqrt",
        lambda x, eps: torch.rsqrt(x + eps),
        spell("torch.rsqrt({x} + {eps})", "({x} + {eps}).rsqrt()"),
        ("v = 1.0 / tl.sqrt(v + {eps})",),
        draw=one_of(eps=(0.1, 1.0)),
        needs_positive=True,
        sizes=UNIT,
    ),
    op(
        "reciprocal",
        lambda x, eps: 1 / (x + eps),
        spell("torch.reciprocal({x} + {eps})", "", "", "1.0 / ({x} + {eps})"),
        ("v = 1.0 / (v + {eps})",),
        draw=one_of(eps=(0.5, 1.0)),
        needs_positive=True,
        sizes=UNIT,
    ),
    op(
        "erf",
        torch.erf,
        torch_and_method("erf"),
        ("v = tl.erf(v)",),
        sizes=UNIT,
        needs_unbounded=True,
        leaves=BOUNDED,
    ),
)
