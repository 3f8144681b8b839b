"""Loop variables of kernels: numbers in Python, and scalars to the kernel. Runs in simulated runners.

A compiled loop's variable is a tensor: `start.to(tl.int64) * stride` is how kernels address large tensors. Where
programs begin at numbers of their own, as in a persistent kernel, it is a tensor here, too: programs that go round
equally often stay in one batch.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from drkernel.judge.untrusted.simulated.builder import BlockValue, agree, np_dtype
from drkernel.judge.untrusted.simulated.shared_memory import loop_of

_LOOP, _SEMANTIC = "the values of a loop", "the semantic"
"""Names among those of the submission's module, for the code that the transformer writes: no source can spell them."""


class LoopTransformer(upstream.ASTTransformer):
    """Makes `for i in loop_values(range, ...)` of `for i in range(...)`."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            function, given = ast.Name(id=_LOOP, ctx=ast.Load()), [node.iter.func, *node.iter.args]
            node.iter = ast.Call(func=function, args=given, keywords=node.iter.keywords)
        return super().visit(node)

    def visit_Assign(self, node: ast.Assign) -> Any:  # noqa: N802
        node = super().visit_Assign(node)
        node.value.func.value.id = _SEMANTIC  # type: ignore[attr-defined]
        return node


def use_own_names(semantic: Any) -> None:
    """Has kernels rewritten with these two names alone.

    Triton would add all that its interpreter's module has, `inspect` among them, to those of the submission's module.
    """
    _Shared.semantic = semantic
    names = {_LOOP: functools.partial(loop_values, semantic), _SEMANTIC: semantic}

    def compiled(rewriter: upstream.FunctionRewriter, tree: ast.Module) -> Callable:
        found = dict(rewriter.kwargs)
        rewriter.fn.__globals__.update(names)
        exec(compile(tree, rewriter.filename, "exec"), rewriter.fn.__globals__, found)
        return found[rewriter.fn.__name__]

    upstream.FunctionRewriter._compile_and_exec = compiled


class _Shared:
    """What the values of loops need, and may not show to kernels."""

    semantic: Any


class LoopValue(int):
    """An int32 that all programs have in common: a loop's variable, and what integers make of it.

    It is computed in Python, at no cost, but as on a GPU: it wraps at 32 bits, quotients are rounded towards zero, and
    comparisons and fractions are scalars of the kernel.
    """

    @property
    def dtype(self) -> tl.dtype:
        return tl.int32

    def to(self, *args: Any, **kwargs: Any) -> Any:
        return _Shared.semantic.to_tensor(int(self)).to(*args, **kwargs)

    cast = to


def plain(value: Any) -> Any:
    """A value of a loop as a number of Python's own."""
    return int(value) if type(value) is LoopValue else value


def _quotient(one: int, other: int) -> int:
    return abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)


_EXACT = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": _quotient,
    "mod": lambda one, other: one - other * _quotient(one, other),
    "lshift": operator.lshift,
    "rshift": operator.rshift,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def _fits(value: int) -> bool:
    return -(2**31) <= value < 2**31


def _wrapped(value: int) -> LoopValue:
    return LoopValue((value + 2**31) % 2**32 - 2**31)


def _operation(method: str, exact: Callable | None = None) -> Callable:
    """An operation with a number: a value of the loop, which `exact` gives, where that is an int32, too. Otherwise, and
    without `exact`, it is a scalar of the kernel."""

    def operate(self: LoopValue, other: Any) -> Any:
        other = plain(other.value if isinstance(other, tl.constexpr) else other)
        if not isinstance(other, (int, float)):
            return NotImplemented
        if exact is None or isinstance(other, float) or not _fits(other):
            return getattr(_Shared.semantic.to_tensor(int(self)), method)(other)
        return _wrapped(exact(int(self), other))

    return operate


for _name, _exact in _EXACT.items():
    setattr(LoopValue, f"__{_name}__", _operation(f"__{_name}__", _exact))
    _reflected = functools.partial(lambda exact, one, other: exact(other, one), _exact)
    setattr(LoopValue, f"__r{_name}__", _operation(f"__r{_name}__", _reflected))
for _name in (*_COMPARISONS, "truediv", "rtruediv"):
    setattr(LoopValue, f"__{_name}__", _operation(f"__{_name}__"))
LoopValue.__neg__ = lambda self: _wrapped(-int(self))  # type: ignore[method-assign]
LoopValue.__invert__ = lambda self: _wrapped(~int(self))  # type: ignore[method-assign]


def static_range(*arguments: Any, **options: Any) -> range:
    """In the place of tl.static_range: the numbers are constants.

    Raises:
        TypeError: for a bound that is known at run time only.
    """
    bounds = _bounds(*arguments, **options)
    if any(isinstance(bound, (tl.tensor, LoopValue)) for bound in bounds):
        raise TypeError("the bounds of tl.static_range must be constants; use range or tl.range")
    return range(*bounds)


def loop_values(semantic: Any, function: Callable, *arguments: Any, **options: Any) -> Iterator[Any]:
    """The variable of a loop over `function(*arguments)`, each time around."""
    if function not in (range, tl.range, tl.core.range):
        yield from function(*arguments, **options)
        return
    bounds = _bounds(*arguments, **options)
    kind = functools.reduce(semantic.integer_promote_impl, [_kind(semantic, bound) for bound in bounds])
    numbers = [bound.handle.data if isinstance(bound, tl.tensor) else np.array([int(bound)]) for bound in bounds]
    if isinstance(bounds[2], (tl.tensor, LoopValue)) and (numbers[2] < 0).any():
        raise ValueError("a step below zero must be a constant: a compiled loop would not go round at all")
    if kind == tl.int32 and all(agree(number) for number in numbers):
        values: Iterator[Any] = map(LoopValue, range(*(int(number[0]) for number in numbers)))
    else:
        values = _values_of_programs(semantic, kind, *(number.astype(np.int64) for number in numbers))
    is_fixed = not any(isinstance(end, (tl.tensor, LoopValue)) for end in bounds)
    yield from loop_of(semantic.builder, options, values, is_fixed)


def _bounds(arg1: Any, arg2: Any = None, step: Any = None, **_: Any) -> list[Any]:
    """Start, stop and step of a range; the arguments are tl.range's."""
    step = 1 if step is None else step
    bounds = (0, arg1, step) if arg2 is None else (arg1, arg2, step)
    return [bound.value if isinstance(bound, tl.constexpr) else bound for bound in bounds]


def _kind(semantic: Any, bound: Any) -> tl.dtype:
    """The dtype of a bound."""
    kind = bound.type if isinstance(bound, tl.tensor) else semantic.to_tensor(plain(bound)).type
    if kind.is_block() or not kind.is_int():
        raise TypeError(f"the bounds and the step of a loop must be integers, found {kind}")
    return kind


def _values_of_programs(semantic: Any, kind: tl.dtype, *bounds: np.ndarray) -> Iterator[Any]:
    """The variable as a scalar of each program, where all go round equally often; else they diverge."""
    start, stop, step = bounds
    if not step.all():
        raise ValueError("range() arg 3 must not be zero")
    times = semantic.builder.scalar(np.maximum(0, -((start - stop) // step)))
    for around in range(int(times)):
        yield semantic.tensor(BlockValue((start + around * step).astype(np_dtype(kind)), kind), kind)
