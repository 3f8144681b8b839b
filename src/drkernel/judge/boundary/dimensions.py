"""Along which dimension an operator works: what it does there one step after the other takes its time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

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

REDUCTIONS = frozenset({"sum", "mean", "amax", "amin", "prod", "linalg_vector_norm", "any", "all", *MOMENTS})

SCATTERS = frozenset({"index_add", "index_copy", "index_put", "scatter", "scatter_add", "scatter_reduce"})
"""Operators that write at places which numbers tell."""

_ALONG_ONE = SCANS | SOFTMAXES | SORTS | {"topk"}
_WHOLE = SORTS - {"sort", "kthvalue", "mode"}
"""Those that take all elements where no dimension is given."""


def dimension(name: str, given: dict[str, Any]) -> tuple[int, str]:
    """How long the dimension is that an operator works along, and a suffix of its name.

    Of a norm, elements that one block of threads goes through; of a reduction, neighbours in memory that it reduces; of
    linear algebra, columns of a matrix; of a selection of rows, elements of one; of a pool, those of a window; of a
    loss of classes, rows that it adds up; else 0.

    Args:
        given: its arguments by name.
    """
    first: Any = next(iter(given.values()), None)
    if name == "native_layer_norm":
        return math.prod(given["normalized_shape"]), ""
    if name == "native_group_norm":
        return first.numel() // max(1, first.shape[0] * given["group"]), ""
    if name == "native_batch_norm:training":
        return first.numel() // max(1, first.shape[1]), ""
    if name == "nll_loss_forward":
        return (given["target"].numel() if given["reduction"] else 0), ""
    if name in BY_COLUMNS:
        return first.shape[-1] if first.dim() else 1, ""
    if name in SELECTS_ROWS:
        return _selected_row(name, first, given), ""
    if "kernel_size" in given and "pool" in name:
        return math.prod(given["kernel_size"]), ""
    if name in REDUCTIONS:
        return _reduced_row(first, given.get("dim")), ""
    if name not in _ALONG_ONE:
        return 0, ""
    place, last = given.get("dim", None if name in _WHOLE else -1), first.dim() - 1
    if place is None or last < 0:
        return math.prod(first.shape), ""
    outer = name in SCANS | SOFTMAXES and place not in (-1, last) and not _is_row(name, first.shape, place)
    return first.shape[place], OUTER if outer else ""


def _is_row(name: str, shape: Sequence[int], place: int) -> bool:
    """Whether numbers along a dimension are neighbours to an operator though it is not the last: a softmax looks at the
    sizes of those behind it, a scan asks whether there is anything else."""
    behind, length = math.prod(shape[place % len(shape) + 1 :]), shape[place]
    return behind == 1 if name in SOFTMAXES else length == math.prod(shape)


def places(name: str, given: dict[str, Any]) -> int | None:
    """How many numbers one of SCATTERS writes; None where only data tell."""
    if name.startswith("scatter"):
        return given["index"].numel()
    if name != "index_put":
        return given["source"].numel()
    indices, rest = given["indices"], given["self"].shape[len(given["indices"]) :]
    if any(index is None or index.dtype in _TRUTH for index in indices):
        return None
    return math.prod(torch.broadcast_shapes(*(index.shape for index in indices))) * math.prod(rest)


_TRUTH = (torch.bool, torch.uint8)


def _selected_row(name: str, tensor: Any, given: dict[str, Any]) -> int:
    """Elements of a row where numbers select along the first dimension alone; else 0."""
    elsewhere = len(given.get("indices", ())) != 1 if name == "index" else bool(given.get("dim"))
    return 0 if elsewhere else math.prod(tensor.shape[1:])


def _reduced_row(tensor: Any, dim: Any) -> int:
    """Elements of the dimensions that are the nearest in memory, as far as they are reduced."""
    places = [dim] if isinstance(dim, int) else dim or range(tensor.dim())
    reduced, row = {place % max(1, tensor.dim()) for place in places}, 0
    several = [place for place in reversed(range(tensor.dim())) if tensor.shape[place] != 1]
    for place in sorted(several, key=tensor.stride):
        if place not in reduced:
            break
        row = (row or 1) * tensor.shape[place]
    return row
