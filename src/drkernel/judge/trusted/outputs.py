"""What a forward returns: trees of lists, tuples and dicts with tensors and scalars, and how they are described."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from drkernel.judge.boundary.shared_tensors import overlaps


@dataclass(frozen=True)
class OutputTensor:
    """One output tensor of a submission, already in private memory."""

    value: Tensor
    expanded: bool = False
    """Whether elements of it lay at one place (`shared_tensors.repeats`)."""
    aliases_input: bool = False
    """Whether it lay in an input's memory."""


def as_output(value: Any) -> Any:
    """A leaf as a submission's would be."""
    return OutputTensor(value) if isinstance(value, Tensor) else value


def leaves(tree: Any, path: str = "output", in_order: bool = False) -> list[tuple[str, Any]]:
    """The leaves of a tree of lists, tuples and dicts, with where they are: `output[1]`, `output['loss']`.

    Args:
        in_order: dicts in the order in which they are, as `shared_tensors.encode` reads them; else by key.
    """
    if isinstance(tree, (list, tuple)):
        return [leaf for i, part in enumerate(tree) for leaf in leaves(part, f"{path}[{i}]", in_order)]
    if isinstance(tree, dict):
        keys = tree if in_order else sorted(tree, key=str)
        return [leaf for key in keys for leaf in leaves(tree[key], f"{path}[{key!r}]", in_order)]
    return [(path, tree)]


def map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Applies a function to every tensor in a tree."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)([map_tensors(v, function) for v in value])
    return {k: map_tensors(v, function) for k, v in value.items()} if isinstance(value, dict) else value


def map_trees(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Applies a function to the leaves of trees of one form."""
    if isinstance(first, (list, tuple)):
        return type(first)([map_trees(function, *parts) for parts in zip(first, *others, strict=True)])
    if isinstance(first, dict):
        return {key: map_trees(function, value, *(other[key] for other in others)) for key, value in first.items()}
    return function(first, *others)


def form_of(tree: Any) -> str:
    """What a tree is at its top: `a sequence of 2`, `a tensor`."""
    if isinstance(tree, (list, tuple)):
        return f"a sequence of {len(tree)}"
    return f"a dict with {sorted(map(str, tree))}" if isinstance(tree, dict) else kind_of(tree)


def kind_of(value: Any) -> str:
    """What a leaf is: `a tensor`, `None`, `a float`."""
    if isinstance(value, (Tensor, OutputTensor)):
        return "a tensor"
    return "None" if value is None else f"a {type(value).__name__}"


def shape_of(tensor: Tensor) -> str:
    return str(list(tensor.shape))


def dtype_of(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def same(first: Any, second: Any) -> bool:
    """Whether two leaves are equal; tensors in shape and values."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.shape == second.shape and torch.equal(first, second)
    return first == second


def all_same(first: list[tuple[str, Any]], second: list[tuple[str, Any]], exactly: bool = False) -> bool:
    """Whether the leaves of two trees are alike, but for rounding where it need not be exactly so."""
    alike = torch.equal if exactly else functools.partial(torch.allclose, equal_nan=True)
    same = lambda a, b: alike(a, b) if isinstance(a, Tensor) else a == b
    return len(first) == len(second) and all(same(a, b) for (_, a), (_, b) in zip(first, second, strict=True))


def overlap(first: Any, second: Any) -> bool:
    """Whether a tensor of one tree lies in the memory of one of the other."""
    ours, theirs = ([t for _, t in leaves(tree) if isinstance(t, Tensor)] for tree in (first, second))
    return any(overlaps(a, b) for a in ours for b in theirs)


def in_layout(values: Tensor, like: Tensor) -> Tensor:
    """The values with another tensor's dtype and strides."""
    expanded = 0 in like.stride() and like.numel() > 1
    empty = torch.empty_like(like) if expanded else like.new_empty_strided(like.shape, like.stride())
    return empty.copy_(values)


def not_finite(tree: Any) -> list[tuple[str, Any]]:
    """The floating leaves of a tree with their infinities and NaN in place, and zeros for all numbers."""
    floats = [(path, t) for path, t in leaves(tree) if isinstance(t, Tensor) and t.is_floating_point()]
    return [(path, torch.where(t.isfinite(), 0.0, t)) for path, t in floats]


def is_float(value: Any) -> bool:
    return value.is_floating_point() if isinstance(value, Tensor) else isinstance(value, float)


def step_of(value: Any) -> float:
    """Relative distance of two numbers of an output's format."""
    return torch.finfo(value.dtype).eps if isinstance(value, Tensor) else 0.0


def alike(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have one shape and one dtype."""
    return (first.shape, first.dtype) == (second.shape, second.dtype)


def identical(first: Any, second: Any) -> bool:
    """Whether two trees of a submission's outputs are the same, bit for bit."""
    pairs = [leaves(first), leaves(second)]
    if [path for path, _ in pairs[0]] != [path for path, _ in pairs[1]]:
        return False
    return all(_identical(a, b) for (_, a), (_, b) in zip(*pairs, strict=True))


def _identical(first: Any, second: Any) -> bool:
    if not (isinstance(first, OutputTensor) and isinstance(second, OutputTensor)):
        return type(first) is type(second) and first == second
    a, b = first.value, second.value
    return alike(a, b) and bool(((a == b) | ((a != a) & (b != b))).all())
