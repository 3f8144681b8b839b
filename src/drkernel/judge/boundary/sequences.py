"""Operators that take one step after the other: layers that are recurrent, and factors of matrices.

Their products are those of one large product of matrices, and their time is not: each step waits for the one before.
"""

from __future__ import annotations

import contextvars
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

RECURRENT = frozenset({"mkldnn_rnn_layer", "_cudnn_rnn", "lstm", "gru", "rnn_tanh", "rnn_relu"})
"""Layers whose first argument has a row for each step."""

BY_COLUMNS = frozenset(
    {
        "linalg_solve_triangular", "triangular_solve", "linalg_cholesky_ex", "cholesky", "cholesky_solve",
        "cholesky_inverse", "linalg_lu_factor_ex", "linalg_lu", "linalg_lu_solve", "_lu_with_info", "linalg_inv_ex",
        "_linalg_solve_ex", "_linalg_det", "_linalg_slogdet", "linalg_qr", "geqrf", "ormqr", "linalg_lstsq",
        "linalg_householder_product", "linalg_ldl_factor_ex", "linalg_ldl_solve", "_linalg_eigh", "linalg_eig",
        "_linalg_eigvals", "_linalg_svd", "linalg_pinv",
    }
)  # fmt: skip
"""Operators that go through the columns of a square matrix in order."""

COLUMNS = 32
"""That one step takes at most."""

_FEW_STEPS = 2
"""Steps that stand for all those of a recurrent layer without data."""
_STANDS_FOR = contextvars.ContextVar("_STANDS_FOR", default=1.0)


def steps(name: str, args: Sequence[Any]) -> int:
    """How many steps an operator takes that wait for each other; 1 for all that have none."""
    if name in RECURRENT and isinstance(args[0], Tensor):
        return max(1, args[0].shape[0])
    if name in BY_COLUMNS:
        return max(1, -(-columns(args) // COLUMNS))
    return 1


def columns(args: Iterable[Any]) -> int:
    """Columns that an operator of linear algebra goes through: those of the largest square in one of its matrices."""
    return max((min(arg.shape[-2:]) for arg in args if isinstance(arg, Tensor) and arg.dim() >= 2), default=1)


def recurrent_flops(args: tuple, result: Any) -> float:
    """LSTM and GRU layers: each step of each sequence multiplies with every weight once."""
    weights = [arg for arg in parts(args) if isinstance(arg, Tensor) and arg.dim() == 2]
    return 2.0 * args[0].shape[0] * args[0].shape[1] * sum(weight.numel() for weight in weights)


def parts(value: Any) -> list[Any]:
    """What lists and tuples hold, however deep."""
    return [inner for part in value for inner in parts(part)] if isinstance(value, (list, tuple)) else [value]


def stands_for() -> float:
    """How many operators the one that is being executed stands for: each of a recurrent layer without data for those of
    several steps."""
    return _STANDS_FOR.get()


def of_few_steps(layer: Callable) -> Callable:
    """A recurrent layer that executes few of its steps where its tensors have no data, since all make the same shapes.

    Six layers of 512 steps are 60,000 operators, which take a second without data, and are asked for some fifty times.
    """

    @functools.wraps(layer)
    def shortened(tensor: Tensor, state: Tensor, weights: Sequence[Tensor], *options: Any) -> Any:
        *_, batch_first = options
        along = 1 if batch_first else 0
        learns = torch.is_grad_enabled() and any(part.requires_grad for part in (tensor, state, *weights))
        if not _has_no_data(tensor) or learns or tensor.shape[along] <= _FEW_STEPS:
            return layer(tensor, state, weights, *options)
        shape = list(tensor.shape)
        shape[along] = _FEW_STEPS
        before = _STANDS_FOR.set(tensor.shape[along] / _FEW_STEPS)
        try:
            few, *last = layer(tensor.as_strided(shape, tensor.stride()), state, weights, *options)
        finally:
            _STANDS_FOR.reset(before)
        shape = list(few.shape)
        shape[along] = tensor.shape[along]
        return torch.empty(shape, dtype=few.dtype, device=few.device), *last

    return shortened


def _has_no_data(tensor: Tensor) -> bool:
    fake = sys.modules.get("torch._subclasses.fake_tensor")  # whose import takes a second
    return tensor.is_meta or (fake is not None and isinstance(tensor, fake.FakeTensor))
