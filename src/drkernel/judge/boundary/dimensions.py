"""Along which dimension an operator works: what it does there one step after the other takes its time."""

from __future__ import annotations

import math
from typing import Any

from drkernel.judge.boundary.sequences import BY_COLUMNS

SOFTMAXES = frozenset({"_softmax", "_log_softmax"})
SCANS = frozenset({"cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"})
OUTER = ":outer"
"""Suffix of these operators' names where they work along another dimension than the last, which is slower."""

MOMENTS = frozenset({"var", "std", "var_mean", "std_mean"})
"""Operators that tell how far numbers lie from their mean."""
SELECTIONS = frozenset({"median", "nanmedian", "kthvalue"})
SORTS = SELECTIONS | {
    "sort", "mode", "_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"
}  # fmt: skip
"""Operators that put numbers in order, or find those at a place of that order: each is asked for by many names."""

MASK = ":mask"
"""Suffix of an operator's name whose places are told by truth values: it has to count them first."""
SELECTS_ROWS = frozenset({"index", "index_select", "embedding"})

GROUPED, DEPTHWISE, TURNED = ":grouped", ":depthwise", ":transposed"
"""Suffixes of a convolution's name: of one in groups, of one whose groups have one input channel each, and of a
transposed one."""

EXTREMES = frozenset({"max", "min", "argmax", "argmin"})
REDUCTIONS = EXTREMES | MOMENTS | {"sum", "mean", "amax", "amin", "prod", "linalg_vector_norm", "any", "all"}

_ALONG_ONE = SCANS | SOFTMAXES | SORTS | {"topk"}
_WHOLE = SORTS - {"sort", "kthvalue", "mode"}
"""Those that take all elements where no dimension is given."""


def dimension(name: str, given: dict[str, Any]) -> tuple[int, str]:
    """How long the dimension is that an operator works along, and a suffix of its name.

    Of a layer norm, elements of a row; of a reduction, those of the last dimensions that it reduces; of linear algebra,
    columns of a matrix; of a selection of rows, elements of one; of a pool, those of a window; of a bilinear
    interpolation, planes; else 0.

    Args:
        given: its arguments by name.
    """
    first: Any = next(iter(given.values()), None)
    if name == "native_layer_norm":
        return math.prod(given["normalized_shape"]), ""
    if name in BY_COLUMNS:
        return first.shape[-1] if first.dim() else 1, ""
    if name in SELECTS_ROWS:
        return _selected_row(name, first, given), ""
    if name == "convolution":
        return 0, _kind(given)
    if "kernel_size" in given and "pool" in name:
        return math.prod(given["kernel_size"]), ""
    if "output_size" in given and "adaptive" in name:
        sizes = given["output_size"]
        return math.ceil(math.prod(first.shape[-len(sizes) :]) / max(1, math.prod(sizes))), ""
    if name == "upsample_bilinear2d":
        return math.prod(first.shape[:2]), ""
    if name in REDUCTIONS:
        return _reduced_row(first, given.get("dim")), ""
    if name not in _ALONG_ONE:
        return 0, ""
    place, last = given.get("dim", None if name in _WHOLE else -1), first.dim() - 1
    if place is None or last < 0:
        return math.prod(first.shape), ""
    outer = name in SCANS | SOFTMAXES and place not in (-1, last)
    return first.shape[place], OUTER if outer else ""


def _selected_row(name: str, tensor: Any, given: dict[str, Any]) -> int:
    """Elements of a row where numbers select along the first dimension alone; else 0."""
    elsewhere = len(given["indices"]) != 1 if name == "index" else bool(given.get("dim"))
    return 0 if elsewhere else math.prod(tensor.shape[1:])


def _kind(given: dict[str, Any]) -> str:
    if given.get("groups", 1) == 1:
        return TURNED if given.get("transposed") else ""
    return DEPTHWISE if given["weight"].shape[1] == 1 and not given.get("transposed") else GROUPED


def _reduced_row(tensor: Any, dim: Any) -> int:
    """Elements of the last dimensions, as far as they are reduced; 0 where the last one is not."""
    places = [dim] if isinstance(dim, int) else dim or range(tensor.dim())
    reduced, row = {place % max(1, tensor.dim()) for place in places}, 0
    for place in reversed(range(tensor.dim())):
        if place not in reduced:
            break
        row = (row or 1) * tensor.shape[place]
    return row
