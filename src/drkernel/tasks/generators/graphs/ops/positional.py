"""Element-wise operators that depend on where an element stands in its matrix."""

from __future__ import annotations

import torch

from drkernel.tasks.generators.graphs.op import Op
from drkernel.tasks.generators.graphs.ops.shapes import torch_and_method, unchanged


def _triangle(name: str, condition: str) -> Op:
    function = getattr(torch, name)
    return Op(
        name,
        "positional",
        unchanged,
        lambda inputs, own, a: function(inputs[0]),
        torch_and_method(name),
        triton=(f"v = tl.where({condition}, v, 0.0)",),
        level=("network",),
    )


POSITIONAL = (_triangle("tril", "r >= c"), _triangle("triu", "r <= c"))
