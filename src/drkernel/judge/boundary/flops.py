"""How many operations the products of an operator have, as the shapes of its operands tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils.flop_counter import flop_registry

from drkernel.hardware.windows import CONVOLUTIONS, terms
from drkernel.judge.boundary.attention import attention_flops
from drkernel.judge.boundary.sequences import parts, recurrent_flops

PRODUCTS = frozenset(
    {
        "_trilinear", "_euclidean_dist", "_cdist_forward", "_pdist_forward", "_embedding_bag", "ormqr", "addbmm",
        "_embedding_bag_forward_only", "_int_mm", "_addmm_activation", "cholesky_solve", "cholesky_inverse", "geqrf",
        "triangular_solve", "_weight_int4pack_mm", "_weight_int8pack_mm", "_scaled_mm", "_grouped_mm", "mkldnn_linear",
        "_native_multi_head_attention", "_transformer_encoder_layer_fwd", "linear", "matrix_exp", "lu_unpack",
    }
)  # fmt: skip
"""Operators with products inside, beside linalg_* and those that torch counts: their work is not their bytes'."""
_NO_PRODUCTS = frozenset({"linalg_vector_norm", "linalg_cross", "linalg_diagonal", "_linalg_check_errors"})

FLOPS = {packet.__name__: count for packet, count in flop_registry.items()}
"""Formulas of torch by operator, each behind a wrapper that finds tensors in a way that anybody may change."""


def flops_of(func: Any, args: tuple, kwargs: dict, result: Any) -> float:
    name = func._overloadpacket.__name__.removesuffix("_")  # in place, the work is the same
    if name in CONVOLUTIONS:
        return terms(func, args, kwargs, result)
    if (count := FLOPS.get(name)) is not None:
        by_shape = getattr(count, "__wrapped__", None)
        if by_shape is None:
            return float(count(*args, **kwargs, out_val=result))
        return float(by_shape(*_shapes(args), **_shapes(kwargs), out_shape=_shapes(result)))
    if (special := _EXTRA_FLOPS.get(name)) is not None:
        return float(special(args, result))
    multiplies = name in PRODUCTS or ("linalg_" in name and name not in _NO_PRODUCTS)
    return _as_product(args, kwargs, result) if multiplies else 0.0


def _shapes(value: Any) -> Any:
    """A value with shapes in the place of tensors."""
    if isinstance(value, dict):
        return {name: _shapes(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shapes(part) for part in value]
    return value.shape if isinstance(value, Tensor) else value


def _as_product(args: tuple, kwargs: dict, result: Any) -> float:
    """Of a matrix product with operands of these sizes: [M, K] and [K, N] give [M, N] by sqrt(MK * KN * MN) terms."""
    read = sorted(t.numel() for t in parts((args, list(kwargs.values()))) if isinstance(t, Tensor))
    written = max((t.numel() for t in parts(result) if isinstance(t, Tensor)), default=0)
    return 2.0 * (read[-1] * read[-2 if len(read) > 1 else -1] * written) ** 0.5 if read else 0.0


_EXTRA_FLOPS: dict[str, Callable[[tuple, Any], float]] = {
    "_scaled_dot_product_flash_attention_for_cpu": attention_flops,
    "_scaled_dot_product_fused_attention_overrideable": attention_flops,
    "mkldnn_rnn_layer": recurrent_flops,
    "lstm": recurrent_flops,
    "gru": recurrent_flops,
    "mv": lambda args, result: 2.0 * args[0].numel(),
    "dot": lambda args, result: 2.0 * args[0].numel(),
    "addmv": lambda args, result: 2.0 * args[1].numel(),
}
