"""What Python code computes where a dispatch mode is off is recorded, too.

A mode alone sees only the outer call of an operator that was defined with torch.library. And it sees nothing of what
runs while torch disables all modes, as it does to print a tensor.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _python_dispatch

unrecorded = _python_dispatch._disable_current_modes
"""A block without any mode, for work that is the judge's own."""

_followed: dict[str, Callable | None] = {}
"""Custom operators whose implementations in Python are followed, by name: with the one that computes."""
_OF_A_DEVICE = ("CPU", "CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
"""The dispatch keys of implementations that compute."""


def is_followed(operator: Any) -> bool:
    """Whether an operator is a custom one with an implementation in Python."""
    return operator._schema.name in _followed


def implementation(operator: Any) -> Callable:
    """What a custom operator computes with, also where its inputs have no data; else the operator."""
    return _followed.get(operator._schema.name) or operator


def record_without_modes(suspended: Callable[[], list[Any]]) -> None:
    """Has a recorder see what runs while its mode is off. `suspended`: the modes that torch has taken off its stack."""
    _follow_custom_operators(suspended)
    _keep_recording(suspended)


@contextlib.contextmanager
def entered(suspended: Callable[[], list[Any]]) -> Iterator[None]:
    """A block with the modes that torch has taken off its stack."""
    with contextlib.ExitStack() as stack:
        for mode in suspended():
            stack.enter_context(mode)
        yield


def _keep_recording(suspended: Callable[[], list[Any]]) -> None:
    """Re-enters the modes that torch has `suspended` wherever it disables all modes, beside those of other recorders.

    To print a tensor it does so. Meanwhile it calls methods of any object that it was told to print with.
    """
    outer = _python_dispatch._disable_current_modes

    @contextlib.contextmanager
    def disabled() -> Iterator[Any]:
        with outer() as modes, entered(suspended):
            yield modes

    _python_dispatch._disable_current_modes = disabled


def _follow_custom_operators(suspended: Callable[[], list[Any]]) -> None:
    """Re-enters the modes that torch has `suspended` while the Python implementation of a custom operator runs.

    Whatever Python code registers goes through the function that is replaced here, be it a module of torch's that is
    imported late. PyTorch's own operators cannot be implemented anew, since they are recorded as what they are.
    Fallbacks, which are for all operators, are refused too.
    """
    opened = torch._C._dispatch_library
    own_operators()  # before anybody else defines one

    def library(kind: str, namespace: str, *place: Any) -> Any:
        if (namespace == "_" or namespace in own_namespaces()) and not _is_importing():
            raise RuntimeError(f"PyTorch's own operators may not be implemented anew (namespace {namespace})")
        return _followed_library(opened(kind, namespace, *place), namespace, suspended)

    torch._C._dispatch_library = library  # type: ignore[assignment]


@functools.cache
def own_operators() -> frozenset[str]:
    """The names of operators that PyTorch itself defines, without overloads: `aten::add`."""
    return frozenset(name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names())


@functools.cache
def own_namespaces() -> frozenset[str]:
    """The namespaces of these operators."""
    return frozenset(name.partition("::")[0] for name in own_operators())


def _is_importing() -> bool:
    """Whether a module is being imported. Those of torch's add operators of their own to its namespaces.

    It decides alone whether an error is raised: garbage may be collected during an import, and call what it likes.
    """
    frame = sys._getframe()
    while frame and frame.f_globals.get("__name__") != "importlib._bootstrap":
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


_HARMLESS = ("define", "reset", "register_ad_inplace_or_view_fallback")
"""What a library may do besides: none of it is an implementation in Python."""


def _followed_library(inner: Any, namespace: str, suspended: Callable[[], list[Any]]) -> SimpleNamespace:
    """What torch.library.Library registers with, without what no custom operator needs.

    No attribute leads to `inner`.
    """

    def impl(name: str, key: str, function: Any, with_keyset: bool = False) -> None:
        operator = f"{namespace}::{name.rpartition('::')[2].partition('.')[0]}"
        if operator in own_operators():
            return
        if function is not torch.library.fallthrough_kernel:
            function = _entering(function, suspended)
            _followed.setdefault(operator, None)
            if key in _OF_A_DEVICE and not with_keyset:
                _followed[operator] = function
        inner.impl(name, key, function, with_keyset)

    allowed = {name: _calling(getattr(inner, name)) for name in _HARMLESS if hasattr(inner, name)}
    return SimpleNamespace(impl=impl, **allowed)


def _calling(method: Callable) -> Callable:
    """A function instead of a bound method, which has its object as an attribute."""
    return lambda *args, **options: method(*args, **options)


def _entering(function: Callable, suspended: Callable[[], list[Any]]) -> Callable:
    @functools.wraps(function)
    def followed(*inputs: Any, **options: Any) -> Any:
        with entered(suspended):
            return function(*inputs, **options)

    return followed
