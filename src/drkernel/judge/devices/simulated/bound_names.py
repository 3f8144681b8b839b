"""The names that a source binds, so that a name that is Triton's or Python's is known to be what it seems."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

LANGUAGE = ("tl", "triton", "libdevice")
"""Triton's modules by the names that they have where kernels are read."""


def bound_names(tree: ast.AST) -> Counter[str]:
    """How often each name is bound by anything: an assignment, a parameter, a function, a class, an import. The imports
    of Triton's modules under the names of `LANGUAGE` are left out."""
    return Counter(name for node in ast.walk(tree) for name in _bound(node))


def _bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            yield name
        case ast.Name(name, ast.Store() | ast.Del()):
            yield name
        case ast.arg(name) | ast.ExceptHandler(name=str(name)):
            yield name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(str(name)) | ast.MatchMapping(rest=str(name)):
            yield name
        case ast.Import(aliases) | ast.ImportFrom(_, aliases):
            for alias in aliases:
                home = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
                name = alias.asname or alias.name.partition(".")[0]
                if name not in LANGUAGE or home.partition(".")[0] != "triton":
                    yield name
