"""Products: of an input with a layer's weight, or of two inputs.

`matmul` and `bmm` have the attributes `transpose_x` and `transpose_y`: whether the last two dimensions of an operand
change places first. `matmul_parameter` has the parameter `value`, whose dimensions change places where `transposed`.
Leading dimensions of `matmul` broadcast as PyTorch's do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from drkernel.tasks.generators.graphs.dims import Shape, as_dim, same
from drkernel.tasks.generators.graphs.nodes import Attributes, Parameter
from drkernel.tasks.generators.graphs.op import Op, Spelling
from drkernel.tasks.generators.graphs.ops.shapes import broadcast, spell
from drkernel.tasks.generators.operators.rows import LARGE, UNIT


def _linear(shapes: Sequence[Shape], a: Attributes) -> tuple[Parameter, ...]:
    out = as_dim(a["out_features"])
    weight = Parameter("weight", (out, shapes[0][-1]), "module")
    return (weight, *((Parameter("bias", (out,), "module"),) if a["bias"] else ()))


def _turned(shape: Shape, transpose: bool) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if transpose else shape


def _matmul_shape(shapes: Sequence[Shape], a: Attributes) -> Shape:
    x, y = _turned(shapes[0], a["transpose_x"]), _turned(shapes[1], a["transpose_y"])
    assert same(x[-1], y[-2]), f"product of {x} and {y}"
    return (*broadcast([x[:-2], y[:-2]], {}), x[-2], y[-1])


def _matmul(inputs: Sequence[Tensor], own: Mapping[str, Tensor], a: dict[str, Any]) -> Tensor:
    x, y = inputs
    return torch.matmul(x.mT if a["transpose_x"] else x, y.mT if a["transpose_y"] else y)


def _orders(*calls: str) -> tuple[Spelling, ...]:
    """Each call with the operands as they are, or turned."""
    turns = (("{%s}",), ("{%s}.T", "{%s}.t()"), ("{%s}.transpose(-2, -1)", "{%s}.mT"))
    found = []
    for call in calls:
        for tx in (False, True):
            for ty in (False, True):
                for matrix in (True,) if call.startswith("torch.mm") else (True, False):
                    texts = [turns[(2 - matrix) * turned] for turned in (tx, ty)]
                    when = lambda a, tx=tx, ty=ty, matrix=matrix: (
                        (a["transpose_x"], a["transpose_y"]) == (tx, ty) and a["matrices"] == matrix
                    )
                    for k in range(max(map(len, texts))):
                        x, y = (text[k % len(text)] % name for text, name in zip(texts, "xy", strict=True))
                        text = call.replace("X", x).replace("Y", y)
                        found.append(Spelling("functional" if "(" in call else "manual", text, when))
    return tuple(found)


_TURNS = {"transpose_x": False, "transpose_y": False}
_EINSUMS = (
    Spelling("functional", 'torch.einsum("ij,jk->ik", {x}, {y})', lambda a: a["ranks"] == (2, 2)),
    Spelling("functional", 'torch.einsum("bijl,lk->bijk", {x}, {y})', lambda a: a["ranks"] == (4, 2)),
    Spelling("functional", 'torch.einsum("bnl,lk->bnk", {x}, {y})', lambda a: a["ranks"] == (3, 2)),
)


def _ranks(shapes: Sequence[Shape], a: Attributes) -> dict[str, Any]:
    """For spellings: whether both are matrices; ranks, where no operand is turned."""
    ranks = tuple(map(len, shapes))
    plain = not (a["transpose_x"] or a["transpose_y"])
    return {"matrices": ranks == (2, 2), "ranks": ranks if plain else ()}


def _weighted(shapes: Sequence[Shape], a: Attributes) -> tuple[Parameter, ...]:
    width, out = shapes[0][-1], as_dim(a["out_features"])
    return (Parameter("value", (out, width) if a["transposed"] else (width, out), "randn * 0.02"),)


PRODUCTS = (
    Op(
        "linear",
        "product",
        lambda shapes, a: (*shapes[0][:-1], as_dim(a["out_features"])),
        lambda inputs, own, a: F.linear(inputs[0], own["weight"], own.get("bias")),
        spell("", "", "nn.Linear({in_features}, {out_features}{bias=})"),
        defaults={"bias": True},
        derive=lambda shapes, a: {"in_features": shapes[0][-1]},
        parameters=_linear,
        attribute_names=("linear", "fc", "gemm", "proj", "matmul"),
        leaves=UNIT,
    ),
    Op(
        "matmul_parameter",
        "product",
        lambda shapes, a: (*shapes[0][:-1], as_dim(a["out_features"])),
        lambda inputs, own, a: inputs[0] @ (own["value"].T if a["transposed"] else own["value"]),
        (
            Spelling("functional", "torch.matmul({x}, {value})", lambda a: not a["transposed"]),
            Spelling("manual", "{x} @ {value}", lambda a: not a["transposed"]),
            Spelling("functional", "torch.matmul({x}, {value}.T)", lambda a: a["transposed"]),
            Spelling("functional", "F.linear({x}, {value})", lambda a: a["transposed"]),
            Spelling("manual", "{x} @ {value}.t()", lambda a: a["transposed"]),
        ),
        defaults={"transposed": False},
        parameters=_weighted,
        attribute_names=("weight", "W", "proj"),
        leaves=UNIT,
    ),
    Op(
        "matmul",
        "product",
        _matmul_shape,
        _matmul,
        _orders("torch.matmul(X, Y)", "torch.mm(X, Y)", "X @ Y") + _EINSUMS,
        arity=2,
        defaults=_TURNS,
        derive=_ranks,
        leaves=LARGE,
    ),
    Op(
        "bmm",
        "product",
        _matmul_shape,
        _matmul,
        _orders("torch.bmm(X, Y)"),
        arity=2,
        defaults=_TURNS,
        derive=_ranks,
        leaves=LARGE,
    ),
    Op(
        "matvec",
        "product",
        lambda shapes, a: shapes[0][:-1],
        lambda inputs, own, a: inputs[0] @ inputs[1],
        spell("torch.matmul({x}, {y})", "{x}.matmul({y})", "", "{x} @ {y}"),
        arity=2,
        leaves=LARGE,
    ),
    Op(
        "outer",
        "product",
        lambda shapes, a: (*shapes[0], *shapes[1]),
        lambda inputs, own, a: torch.outer(inputs[0], inputs[1]),
        spell("torch.outer({x}, {y})", "", "", "{x}[:, None] * {y}[None, :]")
        + spell("", "", "", "{x}.unsqueeze(1) * {y}.unsqueeze(0)"),
        arity=2,
        leaves=UNIT,
    ),
    Op(
        "diagonal_matmul",
        "product",
        lambda shapes, a: shapes[1],
        lambda inputs, own, a: inputs[0][:, None] * inputs[1],
        spell("torch.diag({x}) @ {y}", "", "", ("torch.matmul(torch.diag({x}), {y})", "{x}.unsqueeze(1) * {y}")),
        arity=2,
        leaves=UNIT,
    ),
    Op(
        "addmm",
        "product",
        lambda shapes, a: _matmul_shape(shapes[1:], _TURNS),
        lambda inputs, own, a: inputs[0] + inputs[1] @ inputs[2],
        spell("torch.addmm({x}, {y}, {z})", "", "", ("torch.matmul({y}, {z}) + {x}", "{x} + {y} @ {z}")),
        arity=3,
        leaves=LARGE,
    ),
)
