"""Loop variables of kernels: numbers in Python, and scalars to the kernel. Runs in simulated runners.

A compiled loop's variable is a tensor: `start.to(tl.int64) * stride` is how kernels address large tensors. Where
programs begin at numbers of their own, as in a persistent kernel, it is a tensor here, too: programs that go round
equally often stay in one batch.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from drkernel.judge.untrusted.simulated.builder import BlockValue, agree, np_dtype


class LoopTransformer(upstream.ASTTransformer):
    """Makes `for i in loop_values(range, ...)` of `for i in range(...)`."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            function = ast.Name(id="loop_values", ctx=ast.Load())
            node.iter = ast.Call(func=function, args=[node.iter.func, *node.iter.args], keywords=node.iter.keywords)
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


def loop_values(semantic: Any, function: Callable, *arguments: Any, **options: Any) -> Iterator[Any]:
    """The variable of a loop over `function(*arguments)`, each time around."""
    if function in (range, tl.range, tl.core.range):
        bounds = _bounds(*arguments, **options)
        if any(_differs(bound) for bound in bounds):
            yield from _values_of_programs(semantic, *bounds)
            return
    kind = type("LoopValue", (LoopValue,), {"semantic": semantic})
    for value in function(*arguments, **options):
        yield kind(value) if type(value) is int else value


def _bounds(arg1: Any, arg2: Any = None, step: Any = None, **_: Any) -> tuple[Any, Any, Any]:
    """Start, stop and step of a range; the arguments are tl.range's."""
    step = 1 if step is None else step
    return (0, arg1, step) if arg2 is None else (arg1, arg2, step)


def _differs(bound: Any) -> bool:
    """Whether programs have different numbers there."""
    return isinstance(bound, tl.tensor) and bound.handle.data.ndim == 1 and not agree(bound.handle.data)


def _values_of_programs(semantic: Any, *bounds: Any) -> Iterator[Any]:
    """The variable as a scalar of each program, where all go round equally often; else they diverge."""
    kinds = [bound.dtype for bound in bounds if isinstance(bound, tl.tensor)]
    kind = tl.int64 if tl.int64 in kinds else tl.int32
    start, stop, step = (
        bound.handle.data.astype(np.int64) if isinstance(bound, tl.tensor) else np.array([int(bound)])
        for bound in bounds
    )
    if not step.all():
        raise ValueError("range() arg 3 must not be zero")
    times = semantic.builder.scalar(np.maximum(0, -((start - stop) // step)))
    for around in range(int(times)):
        yield semantic.tensor(BlockValue((start + around * step).astype(np_dtype(kind)), kind), kind)
