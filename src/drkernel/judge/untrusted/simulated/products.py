"""What the interpreter knows of the operands of products: masked lanes, and sums that become products of matrices.

Runs in simulated runners. Blocks are `builder.BlockValue`s.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from drkernel.judge.boundary.op_trace import Math

_WEIGHTS = np.random.default_rng(0)
"""Draws numbers by which the addresses of a row become one."""


def loaded(where: np.ndarray, pointers: np.ndarray, width: int) -> dict:
    """Notes with a loaded block of two dimensions how it lies in memory, and how much of it is data.

    `filled`: the proportion of its rows and of its columns that hold data. Both are arrays over programs: of one that
    loads nothing, and of another one that fills its block, the product is not a quarter of a block each.
    `along`: the axis whose neighbours are neighbours in memory; neither as -1.
    """
    if where.ndim != 3:
        return {}
    first = pointers[0].astype(np.int64)
    along = next((axis for axis in (0, 1) if (np.diff(first.take([0], 1 - axis).ravel()[:2]) == width).any()), -1)
    turned_over = where.swapaxes(1, 2), pointers.swapaxes(1, 2)
    return {"filled": (_filled_rows(where, pointers), _filled_rows(*turned_over)), "along": along}


def _filled_rows(where: np.ndarray, pointers: np.ndarray) -> np.ndarray:
    """The proportion of a block's rows [P, rows, columns] that hold data, by program.

    A row that is loaded once more is no data: where a tile is larger than a small matrix, people load rows `% M` and do
    not mask them. Whoever does so at full size is found out like one who masks there.
    """
    starts = np.sort(pointers[:, :, 0], axis=1)
    if (starts[:, 1:] != starts[:, :-1]).all():
        return where.any(axis=2).mean(axis=1)
    marks = np.where(where, pointers, np.uint64(0)) @ _WEIGHTS.integers(1, 2**63, where.shape[2], np.uint64)
    marks.sort(axis=1)  # a row without data has 0
    different = (marks[:, 1:] != marks[:, :-1]).sum(axis=1) + (marks[:, 0] != 0)
    return different / where.shape[1]


def turned(attr: dict) -> dict:
    """The same notes of a loaded block whose axes are exchanged."""
    if "filled" not in attr:
        return {}
    return {"filled": attr["filled"][::-1], "along": {0: 1, 1: 0}.get(attr["along"], -1)}


def product_fill(left: Any, right: Any) -> np.ndarray | None:
    """The proportion of a product's terms that are data, by program; None where the operands are not what was loaded.

    Returns: [P or 1].
    """
    if "filled" not in left.attr or "filled" not in right.attr:
        return None
    (rows, inner), (also_inner, columns) = left.attr["filled"], right.attr["filled"]
    return rows * columns * (inner * also_inner) ** 0.5


_LEAST_DOT = 16
"""Rows and columns of a sum of products that the compiler makes a tl.dot of."""


def product_of(lhs: Any, rhs: Any) -> dict:
    """Notes with `lhs * rhs` what it is a product of, where a sum over axis 1 of it becomes a tl.dot.

    Triton's compiler takes `tl.sum(a[:, :, None] * b[None, :, :], 1)` in fp32 for a product of matrices in TF32.
    """
    (one, left), (other, right) = (side.attr.get("expanded", (-1, None)) for side in (lhs, rhs))
    if (one, other) != (2, 0) or lhs.dtype.scalar != tl.float32 or lhs.data.ndim != 4 or rhs.data.ndim != 4:
        return {}
    if left.data.ndim != 3 or right.data.ndim != 3 or min(left.data.shape[1], right.data.shape[2]) < _LEAST_DOT:
        return {}
    return {"product": (left, right)}


def is_tf32(precision: Any) -> bool:
    """Whether a product of fp32 is asked for in TF32."""
    return precision is not None and precision == upstream._ir.INPUT_PRECISION.TF32


def dot_math(a: Any, b: Any, precision: Any) -> Math:
    """The arithmetic of a tl.dot of two blocks."""
    dtype = a.dtype.scalar
    if a.data.itemsize == b.data.itemsize == 1:
        return "byte"
    if dtype == tl.float64:
        return "fp64"
    if dtype == tl.float32:
        forms: dict[Any, Math] = {
            upstream._ir.INPUT_PRECISION.IEEE: "fp32",
            upstream._ir.INPUT_PRECISION.TF32x3: "tf32x3",
        }
        return forms.get(precision, "tf32")
    return "half"
