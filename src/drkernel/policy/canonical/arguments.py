"""What a call gives its function: arguments by name, without those that are the default, and how they are written.

Functions that are written in Python have signatures, PyTorch's own have schemas, one for each overload.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import torch

from drkernel.policy.canonical.numbers import rounded


@dataclass(eq=False)
class Ref:
    """A tensor: an input, a parameter, or what a call makes, which gets its name later."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    path: str = ""
    """Where the module holds it, if it does."""


_NOWHERE = -1
"""The place of an argument that has a name alone."""
VARIADIC = {"permute", "repeat", "flip", "tile", "zeros", "ones", "empty", "rand", "randn", "new_zeros", "new_ones"}
"""Functions that take numbers one by one where they want a list."""


def bound(func: Callable, name: str, args: Sequence[Any], words: Mapping[str, Any]) -> Iterator[tuple[str, Any, int]]:
    """(name, value, place) of the arguments that are given and are not the default, in the function's order.

    name: of PyTorch's schemas. What fits none of them keeps its places: `a0`, `a1`, ...
    """
    if (signature := _signature(func)) is not None:
        yield from _of_signature(signature, args, words)
        return
    args = args[: next((k for k in range(len(args), 0, -1) if args[k - 1] is not None), 0)]
    words = {word: value for word, value in words.items() if word != "return_indices" and value is not None}
    for schema in _schemas(name):
        if (found := _fitted(schema, args, words)) is not None:
            for place, argument in enumerate(schema.arguments):
                value = found.get(argument.name)
                usual = argument.has_default_value() and _same(value, argument.default_value)
                if argument.name in found and not usual:
                    yield ("input" if argument.name == "self" else argument.name), value, place
            return
    yield from ((f"a{place}", value, place) for place, value in enumerate(args))
    yield from ((word, value, _NOWHERE) for word, value in words.items())


def _of_signature(
    signature: inspect.Signature, args: Sequence[Any], words: Mapping[str, Any]
) -> Iterator[tuple[str, Any, int]]:
    try:
        found = signature.bind(*args, **words).arguments
    except TypeError:
        found = {f"a{place}": value for place, value in enumerate(args)} | dict(words)
    places = {word: place for place, word in enumerate(signature.parameters)}
    for word, value in found.items():
        parameter = signature.parameters.get(word)
        place = places.get(word, int(word[1:]) if re.fullmatch(r"a\d+", word) else _NOWHERE)
        if parameter is not None and parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            yield word, list(value), place
        elif parameter is None or not _same(value, parameter.default):
            yield word, value, place


def _same(value: Any, default: Any) -> bool:
    """Whether an argument is the default; a number stands for a list of equal ones."""
    if isinstance(value, Ref) or is_tensors(value):
        return False
    if isinstance(value, list) and not isinstance(default, list | tuple):
        return bool(value) and all(_same(part, default) for part in value)
    if isinstance(default, list | tuple) and not isinstance(value, list):
        return bool(default) and all(_same(value, part) for part in default)
    if isinstance(value, list) and isinstance(default, list | tuple):
        return len(value) == len(default) and all(map(_same, value, default))
    both_numbers = isinstance(value, int | float) and isinstance(default, int | float)
    alike = type(value) is type(default) or (both_numbers and bool not in (type(value), type(default)))
    return alike and bool(value == default)


def _fitted(schema: Any, args: Sequence[Any], words: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments by name, where they fit this overload."""
    found: dict[str, Any] = {}
    left, variadic = list(args), schema.name.removeprefix("aten::") in VARIADIC
    for argument in schema.arguments:
        kind, name = str(argument.type), argument.name
        other = {"input": "self", "self": "input", "dim": "axis"}.get(name, name)
        if left and not argument.kwarg_only:
            several = variadic and "List[int]" in kind and len(left) > 1 and all(type(part) is int for part in left)
            value = list(left) if several else left[0]
            left = [] if several else left[1:]
        elif name in words or other in words:
            value = words[name if name in words else other]
        elif argument.has_default_value():
            continue
        else:
            return None
        if not _is_of(value, kind):
            return None
        found[name] = value
    given = sum(word in found or {"input": "self", "axis": "dim"}.get(word) in found for word in words)
    return found if not left and given == len(words) else None


def _is_of(value: Any, kind: str) -> bool:
    """Whether a value may be given for an argument of this type."""
    if value is None:
        return kind.startswith("Optional")
    kind = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional") else kind
    if isinstance(value, list):
        return kind.startswith("List[Tensor]") if is_tensors(value) else kind.startswith(("List", "int["))
    kinds = next((kinds for type_, kinds in _KINDS.items() if isinstance(value, type_)), None)
    return kind in kinds if kinds else kind not in ("Tensor", "bool", "List[int]", "str")


_KINDS: dict[type, tuple[str, ...]] = {
    Ref: ("Tensor",),
    bool: ("bool", "number", "Scalar"),
    int: ("int", "float", "number", "Scalar", "List[int]", "List[float]"),
    float: ("float", "number", "Scalar"),
    str: ("str",),
}
"""Types of arguments that take a value, by its type."""


@functools.cache
def _schemas(name: str) -> list[Any]:
    found: list[Any] = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    return found


@functools.cache
def _signature(func: Callable) -> inspect.Signature | None:
    """Of a function that is written in Python, unless it takes anything."""
    if not inspect.isfunction(func):
        return None
    found = inspect.signature(func)
    return found if any(p.kind is p.POSITIONAL_OR_KEYWORD for p in found.parameters.values()) else None


def is_tensors(value: Any) -> bool:
    """Whether a value is a tensor, or a list of some."""
    return isinstance(value, Ref) or (
        isinstance(value, list) and bool(value) and all(isinstance(part, Ref) for part in value)
    )


def leaves(value: Any) -> Iterator[Any]:
    """What is in lists, dictionaries and slices."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from leaves(part)
    elif isinstance(value, slice):
        yield from (value.start, value.stop, value.step)
    else:
        yield value


def written(value: Any) -> str:
    """A value in a call."""
    match value:
        case Ref():
            return value.name
        case bool() | None | torch.dtype():
            return str(value)
        case float():
            return rounded(value) if math.isfinite(value) else f'float("{value}")'
        case list() | tuple():
            return f"({', '.join(map(written, value))}{',' * (len(value) == 1)})"
        case slice() | EllipsisType():
            return index_text([value])
    return repr(value)


def index_text(index: Sequence[Any]) -> str:
    """What stands between brackets."""
    found = []
    for part in index:
        if isinstance(part, slice):
            ends = ["" if end is None else written(end) for end in (part.start, part.stop)]
            found.append(":".join(ends) + (f":{written(part.step)}" if part.step not in (None, 1) else ""))
        else:
            found.append("..." if part is Ellipsis else written(part))
    return ", ".join(found)
