"""Products: of an input with a layer's weight, or of two inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F

from drkernel.tasks.graphs.dims import Shape, as_dim
from drkernel.tasks.graphs.nodes import Attributes, Parameter
from drkernel.tasks.graphs.op import Op
from drkernel.tasks.graphs.ops.shapes import spell
from drkernel.tasks.operators.rows import UNIT


def _linear(shapes: Sequence[Shape], a: Attributes) -> tuple[Parameter, ...]:
    out = as_dim(a["out_features"])
    weight = Parameter("weight", (out, shapes[0][-1]), "module")
    return (weight, *((Parameter("bias", (out,), "module"),) if a["bias"] else ()))


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
)
