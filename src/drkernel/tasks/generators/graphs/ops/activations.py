"""Activations, and what else people apply element by element in networks."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F

from drkernel.tasks.generators.graphs.ops.shapes import one_of, spell
from drkernel.tasks.generators.graphs.ops.unary import (
    BOUNDED,
    EXPM1,
    FROM_UNIT,
    POSITIVE,
    SIGNED_AND_BOUNDED,
    UNIT,
    UP_TO_UNIT,
    op,
)

_NEGATIVE = {"needs_signed": True, "sizes": UNIT}
_SATURATING = {"needs_signed": True, "needs_unbounded": True, "sizes": UNIT}
_TANH = "tl.where(tl.abs(v) < 0.1, v - v * v * v * (5 - 2 * v * v) / 15, 2 * tl.sigmoid(2 * v) - 1)"
_GELU_TANH = (
    "0.5 * {x} * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * ({x} + 0.044715 * torch.pow({x}, 3.0))))",
    "0.5 * {x} * (1 + torch.tanh(0.7978845608028654 * ({x} + 0.044715 * {x} * {x} * {x})))",
)
_LIMITS = ((-1.0, 1.0), (-0.5, 0.5), (-2.0, 2.0), (-1.0, 0.5))


def _limits(rng: random.Random) -> dict[str, float]:
    if rng.random() < 0.5:
        return dict(zip(("min_val", "max_val"), rng.choice(_LIMITS), strict=True))
    return {"min_val": round(rng.uniform(-2, -0.1), 2), "max_val": round(rng.uniform(0.2, 2.5), 2)}


ACTIVATIONS = (
    op(
        "relu",
        torch.relu,
        spell("F.relu({x})", "{x}.relu()", "nn.ReLU()", ("torch.clamp({x}, min=0)", "{x}.clamp(min=0.0)"))
        + spell("torch.relu({x})"),
        attribute_names=("relu", "act", "activation"),
    ),
    op(
        "leaky_relu",
        lambda x, negative_slope: F.leaky_relu(x, negative_slope),
        spell(
            "F.leaky_relu({x}, negative_slope={negative_slope})",
            "",
            "nn.LeakyReLU({negative_slope})",
            "torch.where({x} > 0, {x}, {x} * {negative_slope})",
        )
        + spell("F.leaky_relu({x}, {negative_slope})", "", "nn.LeakyReLU(negative_slope={negative_slope})"),
        ("v = tl.where(v > 0, v, v * {negative_slope})",),
        draw=one_of(negative_slope=(0.01, 0.1, 0.2, 0.05)),
        arguments={"negative_slope": ("negative_slope", "alpha")},
        attribute_names=("leaky_relu", "act", "lrelu"),
    ),
    op(
        "silu",
        F.silu,
        spell("F.silu({x})", "", "nn.SiLU()", ("{x} * torch.sigmoid({x})", "torch.sigmoid({x}) * {x}"))
        + spell("", "", "", ("{x} * {x}.sigmoid()", "{x} * F.sigmoid({x})", "{x} / (1.0 + torch.exp(-{x}))")),
        attribute_names=("act", "swish", "silu"),
    ),
    op(
        "gelu",
        F.gelu,
        spell("F.gelu({x})", "", "nn.GELU()", "0.5 * {x} * (1.0 + torch.erf({x} / math.sqrt(2.0)))")
        + spell("torch.nn.functional.gelu({x})", "", "", "{x} * 0.5 * (1 + torch.erf({x} * 0.7071067811865476))"),
        attribute_names=("gelu", "act", "activation"),
    ),
    op(
        "gelu_tanh",
        lambda x: F.gelu(x, approximate="tanh"),
        spell('F.gelu({x}, approximate="tanh")', "", 'nn.GELU(approximate="tanh")', _GELU_TANH),
        attribute_names=("gelu", "act"),
    ),
    op(
        "quick_gelu",
        lambda x: x * torch.sigmoid(1.702 * x),
        spell("", "", "", ("{x} * torch.sigmoid(1.702 * {x})", "torch.sigmoid({x} * 1.702) * {x}")),
        ("v = v * tl.sigmoid(1.702 * v)",),
        needs_signed=True,
        sizes=UP_TO_UNIT,
    ),
    op(
        "elu",
        lambda x, alpha: F.elu(x, alpha),
        spell(
            "F.elu({x}, alpha={alpha})",
            "",
            "nn.ELU(alpha={alpha})",
            "torch.where({x} > 0, {x}, {alpha} * (torch.exp({x}) - 1.0))",
        ),
        (f"v = tl.where(v > 0, v, {{alpha}} * {EXPM1.format(v='v')})",),
        draw=one_of(alpha=(1.0, 0.5, 1.5)),
        arguments={"alpha": ("alpha",)},
        attribute_names=("elu", "act"),
    ),
    op(
        "selu",
        F.selu,
        spell("F.selu({x})", "", "nn.SELU()") + spell("torch.selu({x})"),
        (f"v = tl.where(v > 0, v, 1.6732632423543772 * {EXPM1.format(v='v')})", "v = v * 1.0507009873554805"),
        attribute_names=("selu", "act"),
        **_NEGATIVE,
    ),
    op(
        "celu",
        lambda x, alpha: F.celu(x, alpha),
        spell("F.celu({x}, alpha={alpha})", "", "nn.CELU(alpha={alpha})"),
        ("u = v / {alpha}", f"v = tl.where(v > 0, v, {{alpha}} * {EXPM1.format(v='u')})"),
        draw=one_of(alpha=(0.5, 2.0, 1.5)),
        arguments={"alpha": ("alpha",)},
        **_NEGATIVE,
    ),
    op(
        "mish",
        F.mish,
        spell(
            "F.mish({x})", "", "nn.Mish()", ("{x} * torch.tanh(F.softplus({x}))", "torch.tanh(F.softplus({x})) * {x}")
        )
        + spell("torch.nn.functional.mish({x})"),
        attribute_names=("mish", "act"),
    ),
    op(
        "hardswish",
        F.hardswish,
        spell("F.hardswish({x})", "", "nn.Hardswish()", "{x} * torch.clamp({x} + 3, 0, 6) / 6")
        + spell("torch.nn.functional.hardswish({x})", "", "", "{x} * F.relu6({x} + 3.0) / 6.0"),
        attribute_names=("hardswish", "act"),
    ),
    op(
        "softplus",
        F.softplus,
        spell("F.softplus({x})", "", "nn.Softplus()") + spell("torch.nn.functional.softplus({x})"),
        attribute_names=("softplus", "act"),
    ),
    op("logsigmoid", F.logsigmoid, spell("F.logsigmoid({x})", "", "nn.LogSigmoid()")),
    op(
        "softsign",
        F.softsign,
        spell("F.softsign({x})", "", "nn.Softsign()", ("{x} / (1 + torch.abs({x}))", "{x} / (1.0 + {x}.abs())")),
        attribute_names=("softsign", "act"),
    ),
    op(
        "sigmoid",
        torch.sigmoid,
        spell("torch.sigmoid({x})", "{x}.sigmoid()", "nn.Sigmoid()", "1.0 / (1.0 + torch.exp(-{x}))")
        + spell("F.sigmoid({x})"),
        attribute_names=("sigmoid", "act", "gate"),
    ),
    op(
        "tanh",
        torch.tanh,
        spell("torch.tanh({x})", "{x}.tanh()", "nn.Tanh()") + spell("F.tanh({x})"),
        attribute_names=("tanh", "act", "activation"),
    ),
    op(
        "hardsigmoid",
        F.hardsigmoid,
        spell("F.hardsigmoid({x})", "", "nn.Hardsigmoid()", "torch.clamp({x} / 6 + 0.5, 0, 1)"),
        attribute_names=("hardsigmoid", "act"),
    ),
    op(
        "relu6",
        F.relu6,
        spell("F.relu6({x})", "", "nn.ReLU6()", "torch.clamp({x}, 0, 6)"),
        attribute_names=("relu6", "act"),
    ),
    op(
        "hardtanh",
        lambda x, min_val, max_val: F.hardtanh(x, min_val, max_val),
        spell(
            "F.hardtanh({x}, min_val={min_val}, max_val={max_val})",
            "{x}.clamp(min={min_val}, max={max_val})",
            "nn.Hardtanh(min_val={min_val}, max_val={max_val})",
            "torch.clamp({x}, {min_val}, {max_val})",
        )
        + spell("torch.clamp({x}, min={min_val}, max={max_val})"),
        ("v = tl.minimum(tl.maximum(v, {min_val}), {max_val})",),
        draw=lambda rng, shapes: _limits(rng),
        arguments={"min_val": ("min_val", "min_value", "clamp_min"), "max_val": ("max_val", "max_value", "clamp_max")},
        attribute_names=("hardtanh", "clip"),
        leaves=SIGNED_AND_BOUNDED,
        **_SATURATING,
    ),
    op(
        "softshrink",
        lambda x, lambd: F.softshrink(x, lambd),
        spell("F.softshrink({x}, lambd={lambd})", "", "nn.Softshrink({lambd})"),
        ("v = tl.where(v > {lambd}, v - {lambd}, tl.where(v < -{lambd}, v + {lambd}, 0.0))",),
        draw=one_of(lambd=(0.5, 0.25, 0.1)),
        arguments={"lambd": ("lambd", "threshold")},
        **_SATURATING,
    ),
    op(
        "tanhshrink",
        F.tanhshrink,
        spell("F.tanhshrink({x})", "", "nn.Tanhshrink()", "{x} - torch.tanh({x})"),
        (
            "u = v * v",
            "w = v * u * (0.33333333 - u * (0.13333333 - u * (0.053968254 - u * 0.021869488)))",
            "v = tl.where(u < 0.04, w, v - (2 * tl.sigmoid(2 * v) - 1))",
        ),
        needs_unbounded=True,
        sizes=UNIT,
    ),
    op(
        "hardshrink",
        lambda x, lambd: F.hardshrink(x, lambd),
        spell("F.hardshrink({x}, lambd={lambd})", "", "nn.Hardshrink({lambd})"),
        ("v = tl.where(tl.abs(v) > {lambd}, v, 0.0)",),
        draw=one_of(lambd=(0.5, 0.25)),
        level=("single",),
        **_SATURATING,
    ),
    op(
        "threshold",
        lambda x, threshold, value: F.threshold(x, threshold, value),
        spell("F.threshold({x}, {threshold}, {value})", "", "nn.Threshold({threshold}, {value})"),
        ("v = tl.where(v > {threshold}, v, {value})",),
        draw=one_of(threshold=(0.1, 0.5), value=(0.0, -1.0)),
        level=("single",),
        **_NEGATIVE,
    ),
    op(
        "squared_relu",
        lambda x: torch.relu(x) ** 2,
        spell("torch.square(F.relu({x}))", "{x}.relu().square()", "", "F.relu({x}) ** 2")
        + spell("", "", "", "torch.pow(torch.relu({x}), 2)"),
        ("v = tl.maximum(v, 0.0)", "v = v * v"),
        needs_signed=True,
        sizes=FROM_UNIT,
        leaves=POSITIVE,
    ),
    op(
        "soft_cap",
        lambda x, cap: cap * torch.tanh(x / cap),
        spell("", "", "", ("{cap} * torch.tanh({x} / {cap})", "torch.tanh({x} / {cap}) * {cap}")),
        ("v = v / {cap}", f"v = {{cap}} * {_TANH}"),
        draw=one_of(cap=(2.0, 1.5, 3.0)),
        arguments={"cap": ("cap", "soft_cap", "limit")},
        needs_unbounded=True,
        sizes=UNIT,
        leaves=BOUNDED,
    ),
    op(
        "dropout",
        lambda x, p: x,
        spell("F.dropout({x}, p={p}, training=self.training)", "", "nn.Dropout(p={p})")
        + spell("", "", "nn.Dropout({p})"),
        draw=one_of(p=(0.1, 0.2, 0.5)),
        arguments={"p": ("dropout_p", "dropout", "p")},
        attribute_names=("dropout", "drop"),
        level=("chain",),
    ),
)
