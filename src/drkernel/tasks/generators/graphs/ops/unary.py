"""What entries of element-wise operators of one input share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from drkernel.tasks.generators.graphs.op import Op
from drkernel.tasks.generators.graphs.ops.shapes import unchanged
from drkernel.tasks.generators.operators.stages import ACTIVATIONS as _KNOWN_ACTIVATIONS
from drkernel.tasks.generators.operators.stages import ARITHMETIC as _KNOWN_ARITHMETIC

_KNOWN = {op.name: op for op in (*_KNOWN_ACTIVATIONS, *_KNOWN_ARITHMETIC)}
UNIT, UP_TO_UNIT, FROM_UNIT = ("unit",), ("small", "unit"), ("unit", "large")
POSITIVE, BOUNDED = {"signed": False}, {"bounded": True}
POSITIVE_AND_BOUNDED = {**POSITIVE, **BOUNDED}
SIGNED_AND_BOUNDED = {"signed": True, **BOUNDED}
EXPM1 = "tl.where(tl.abs({v}) < 0.1, {v} + {v} * {v} * (12 + {v} * (4 + {v})) / 24, tl.exp({v}) - 1)"
"""exp(v) - 1 with its relative precision near zero."""
LOG1P = "v = tl.log(u) + tl.where(tl.abs(v) < 1, (v - (u - 1)) / u, 0.0)"
"""log(1 + v) likewise, where u is 1 + v, which has lost digits of v; infinite where v is."""


def op(name: str, eager: Callable[..., Tensor], spellings: tuple, triton: tuple[str, ...] = (), **more: Any) -> Op:
    """An entry. Lines and states that the generator `operators` has are taken from there.

    Args:
        eager: of the input, and of those attributes that `draw` gives.
    """
    known = _KNOWN.get(name)
    facts: dict[str, Any] = {}
    if known:
        facts = {"needs_signed": known.needs_signed, "needs_unbounded": known.needs_unbounded, "sizes": known.sizes}
        facts |= {"leaves": known.leaves, "superfluous_before": known.makes_superfluous}
        triton = triton or known.triton
    return Op(
        name,
        "pointwise",
        unchanged,
        lambda inputs, own, attributes: eager(inputs[0], **attributes),
        spellings,
        triton=triton,
        **(facts | more),
    )
