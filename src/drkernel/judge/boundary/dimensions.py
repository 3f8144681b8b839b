"""Along which dimension an operator works: what it does there one step after the other takes its time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from drkernel.judge.boundary.sequences import BY_COLUMNS, columns

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

SCATTERS = frozenset(
    {"index_add", "index_copy", "index_put", "index_reduce", "scatter", "scatter_add", "scatter_reduce"}
)
"""Operators that write at places which numbers tell."""

INTERPOLATIONS = (
    "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
)  # fmt: skip
"""Each thread goes through all channels of its place, in all images."""
SAMPLERS = ("grid_sampler_2d", "grid_sampler_3d")
"""The same, but a thread's place is in one image."""
PAIRS = ("_cdist_forward", "_pdist_forward")
"""Distances of which each is a block of threads."""
MARGINS = ("multi_margin_loss", "multilabel_margin_loss_forward")
"""Losses of which each row is a block of threads."""

ADDS = ":add"
"""Suffix of operators that put numbers somewhere, where they add to what is there."""
SORTED = ":sorted"
"""Suffix of `isin` where it sorts."""

_ALONG_ONE = SCANS | SOFTMAXES | SORTS | {"topk"}
_WHOLE = SORTS - {"sort", "kthvalue", "mode"}
"""Those that take all elements where no dimension is given."""


def dimension(name: str, given: dict[str, Any]) -> tuple[int, str]:
    """How long the dimension is that an operator works along, and a suffix of its name.

    Of a norm, elements that one block of threads goes through, of a batch norm, channels; of a reduction, neighbours in
    memory that it reduces; of linear algebra, columns of a matrix; of a selection of rows, elements of one; of a pool,
    those of a window; of a loss of classes, rows that it adds up; of an interpolation, planes; of distances, 1; else 0.

    Args:
        given: its arguments by name.
    """
    first: Any = next(iter(given.values()), None)
    if name in _LENGTHS:
        return _LENGTHS[name](first, given), ""
    if name in SELECTS_ROWS:
        return _selected_row(name, first, given), ""
    if name == "convolution":
        return 0, _kind(given)
    if name.removesuffix("_") in ("index_put", "put", "scatter"):
        return 0, ADDS if given.get("accumulate") or given.get("reduce") in ("add", "multiply") else ""
    if name == "isin":
        return _compared(given)
    if "pool" in name and ("kernel_size" in given or "output_size" in given):
        return _window(first, given), ""
    if name not in _ALONG_ONE:
        return 0, ""
    place, last = given.get("dim", None if name in _WHOLE else -1), first.dim() - 1
    if place is None or last < 0:
        return math.prod(first.shape), ""
    outer = name in SCANS | SOFTMAXES and place not in (-1, last) and not _is_row(name, first.shape, place)
    return first.shape[place], OUTER if outer else ""


def _compared(given: dict[str, Any]) -> tuple[int, str]:
    """With how many numbers `isin` compares all others, one by one; where there are many, all that it sorts."""
    sizes = [getattr(given.get(name), "numel", lambda: 1)() for name in ("test_elements", "elements")]
    return (sizes[1], SORTED) if sizes[0] >= 10 * sizes[1] ** 0.145 else (sizes[0], "")


def _window(tensor: Any, given: dict[str, Any]) -> int:
    if "kernel_size" in given:
        return math.prod(given["kernel_size"])
    sizes = given["output_size"]
    return math.ceil(math.prod(tensor.shape[-len(sizes) :]) / max(1, math.prod(sizes)))


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


def _kind(given: dict[str, Any]) -> str:
    if given.get("groups", 1) == 1:
        return TURNED if given.get("transposed") else ""
    return DEPTHWISE if given["weight"].shape[1] == 1 and not given.get("transposed") else GROUPED


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


_UNSORTED = 3072
"""Indices of rows that CUDA adds up without sorting them."""

_LENGTHS: dict[str, Callable[[Any, dict[str, Any]], int]] = {
    "native_layer_norm": lambda first, given: math.prod(given["normalized_shape"]),
    "native_group_norm": lambda first, given: first.numel() // max(1, first.shape[0] * given["group"]),
    "native_batch_norm:training": lambda first, given: first.shape[1],
    "nll_loss_forward": lambda first, given: given["target"].numel() if given["reduction"] else 0,
    **dict.fromkeys(BY_COLUMNS, lambda first, given: columns(given.values())),
    **dict.fromkeys(INTERPOLATIONS, lambda first, given: math.prod(first.shape[:2])),
    **dict.fromkeys(SAMPLERS, lambda first, given: first.shape[1]),
    **dict.fromkeys(PAIRS, lambda first, given: 1),
    **dict.fromkeys(MARGINS, lambda first, given: first.shape[-1] if first.dim() else 1),
    "embedding_dense_backward": lambda first, given: max(0, given["indices"].numel() - _UNSORTED),
    **dict.fromkeys(REDUCTIONS, lambda first, given: _reduced_row(first, given.get("dim"))),
}
