"""Custom operators: what a submission registers with PyTorch's dispatcher, as far as it is Python, is recorded.

A dispatch mode alone sees only the outer call of an operator that was defined with torch.library.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

_followed: set[str] = set()
"""Custom operators whose implementations in Python are followed, by name."""


def is_followed(operator: Any) -> bool:
    """Whether an operator is a custom one with an implementation in Python."""
    return operator._schema.name in _followed


def follow_custom_operators(suspended: Callable[[], list[Any]]) -> None:
    """Re-enters the modes that torch has `suspended` while the Python implementation of a custom operator runs.

    Whatever Python code registers goes through the function that is replaced here. PyTorch's own operators cannot be
    implemented anew, since they are recorded as what they are. Fallbacks, which are for all operators, are refused too.
    """
    opened = torch._C._dispatch_library
    own_namespaces()  # before anybody else defines one

    def library(kind: str, namespace: str, *place: Any) -> Any:
        inner = opened(kind, namespace, *place)
        if _is_importing():
            return inner
        if namespace == "_" or namespace in own_namespaces():
            raise RuntimeError(f"PyTorch's own operators may not be implemented anew (namespace {namespace})")
        return _FollowedLibrary(inner, namespace, suspended)

    torch._C._dispatch_library = library  # type: ignore[assignment]


@functools.cache
def own_namespaces() -> frozenset[str]:
    """The namespaces of operators that PyTorch itself defines."""
    return frozenset(name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names())


def _is_importing() -> bool:
    """Whether a module of a library is being imported, which may add to PyTorch's operators. Submissions are none."""
    frame = sys._getframe()
    while frame and frame.f_globals.get("__name__") != "importlib._bootstrap":
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


class _FollowedLibrary:
    """What torch.library.Library registers with, without what no custom operator needs."""

    def __init__(self, inner: Any, namespace: str, suspended: Callable[[], list[Any]]):
        self.define, self.reset = inner.define, inner.reset
        self._inner, self._namespace, self._suspended = inner, namespace, suspended

    def impl(self, name: str, key: str, function: Any, with_keyset: bool = False) -> None:
        if function is not torch.library.fallthrough_kernel:
            _followed.add(f"{self._namespace}::{name.rpartition('::')[2].partition('.')[0]}")
            function = self._entering(function)
        self._inner.impl(name, key, function, with_keyset)

    def _entering(self, function: Callable) -> Callable:
        suspended = self._suspended

        @functools.wraps(function)
        def followed(*inputs: Any, **options: Any) -> Any:
            with contextlib.ExitStack() as stack:
                for mode in suspended():
                    stack.enter_context(mode)
                return function(*inputs, **options)

        return followed
