"""Loop variables of kernels: numbers in Python, and scalars to the kernel. Runs in simulated runners.

A compiled loop's variable is a tensor: `start.to(tl.int64) * stride` is how kernels address large tensors.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import triton.language as tl
from triton.runtime import interpreter as upstream


class LoopTransformer(upstream.ASTTransformer):
    """Makes `for i in loop_values(range(...))` of each loop."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.For):
            function = ast.Name(id="loop_values", ctx=ast.Load())
            node.iter = ast.Call(func=function, args=[node.iter], keywords=[])
        return super().visit(node)


class LoopValue(int):
    """A number of a loop, and what is computed from it, with the methods that kernels ask of scalars."""

    semantic: Any
    dtype = tl.int32

    def to(self, *args: Any, **kwargs: Any) -> Any:
        return self.semantic.to_tensor(int(self)).to(*args, **kwargs)

    cast = to


def _closed(name: str) -> Callable:
    """An operation on integers whose result is a value of the loop, too."""
    function = getattr(int, name)

    def operate(self: LoopValue, *others: Any) -> Any:
        result = function(self, *others)
        return type(self)(result) if type(result) is int else result

    return operate


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv", "mod", "rmod", "neg"):
    setattr(LoopValue, f"__{_name}__", _closed(f"__{_name}__"))


def loop_values(semantic: Any, values: Iterable) -> Iterator[Any]:
    kind = type("LoopValue", (LoopValue,), {"semantic": semantic})
    for value in values:
        yield kind(value) if type(value) is int else value
