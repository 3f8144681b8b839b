"""What a function of a completion makes, found without running it: its source, on tensors without data.

    def f1(t0, p0):                                  t0: (4, 8, 16, 16), p0: (32, 8, 3, 3)
        N = p0.shape[0]                              N: 32
        o = t0.new_empty((t0.shape[0], N, t0.shape[2] - 3 + 1, t0.shape[3] - 3 + 1))
        kernel1[triton.cdiv(o.numel(), 1024),](t0, p0, o, o.numel(), N, BLOCK=1024)
        return o                                     (4, 32, 14, 14)

Nothing of a completion is executed: expressions are computed one by one, as far as they are of the kinds that are
listed here. What is not stays unknown.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS = {
    "torch.empty": torch.empty,
    "torch.zeros": torch.zeros,
    "torch.empty_like": torch.empty_like,
    "torch.zeros_like": torch.zeros_like,
    "F.pad": F.pad,
    "triton.cdiv": lambda x, y: -(-x // y),
    "triton.next_power_of_2": lambda n: 1 << (n - 1).bit_length(),
}
_METHODS = (
    *("contiguous", "numel", "size", "dim", "new_empty", "new_zeros", "flatten", "unflatten", "reshape", "view"),
    *("permute", "transpose", "t", "squeeze", "unsqueeze", "narrow", "mean", "sum", "amax", "amin", "float"),
)
_UNREAD = ("dtype", "device")
"""Arguments that change no shape."""


class Unknown(Exception):
    """A value that the source does not say."""


class Wrong(Exception):
    """A call of PyTorch's that fails."""


def tensor(shape: Sequence[int]) -> Tensor:
    return torch.empty(tuple(shape), device="meta")


def returned(function: ast.FunctionDef, args: Sequence[Any]) -> Any:
    """What a function returns: a tensor without data, a number, a tuple.

    Args:
        args: what it is given; None is what is not known.

    Raises:
        Unknown: the source does not say what it returns.
        Wrong: it fails.
    """
    for statement, known in _statements(function, args):
        if isinstance(statement, ast.Return) and statement.value:
            return value_of(statement.value, known)
    raise Unknown


def launches(function: ast.FunctionDef, args: Sequence[Any]) -> Iterator[tuple[str, list[ast.expr], Mapping[str, Any]]]:
    """The kernels that a function launches: the name, what is given by place, and what is known there, by name.

    Raises:
        Wrong: the function fails.
    """
    for statement, known in _statements(function, args):
        match statement:
            case ast.Expr(ast.Call(ast.Subscript(ast.Name(kernel)), given)):
                yield kernel, given, dict(known)


def _statements(function: ast.FunctionDef, args: Sequence[Any]) -> Iterator[tuple[ast.stmt, dict[str, Any]]]:
    """The statements, as far as they are assignments and launches, one after the other, and what is known there."""
    known = {name.arg: value for name, value in zip(function.args.args, args, strict=False) if value is not None}
    for statement in function.body:
        yield statement, known
        match statement:
            case ast.Assign([target], value):
                _assign(target, value, known)
            case ast.Expr():  # a launch, which gives tensors no other shapes
                pass
            case _:
                return


def _assign(target: ast.expr, value: ast.expr, known: dict[str, Any]) -> None:
    texts = [name.id for name in ast.walk(target) if isinstance(name, ast.Name)]
    try:
        found = value_of(value, known)
        parts = list(found) if isinstance(target, ast.Tuple) else [found]
    except Unknown:
        parts = []
    for name in texts:
        known.pop(name, None)
    known.update(zip(texts, parts, strict=False))


def value_of(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """The value of an expression; errors as of `returned`.

    known: tensors and numbers by name.
    """
    value = lambda part: value_of(part, known)
    match node:
        case ast.Constant(int() | float() | None):
            return node.value
        case ast.Name(name) if name in known:
            return known[name]
        case ast.Tuple(parts) | ast.List(parts):
            return tuple(one for part in parts for one in _unpacked(part, known))
        case ast.UnaryOp(ast.USub(), operand):
            return -_number(value(operand))
        case ast.BinOp(left, sign, right) if type(sign) in _OPERATORS:
            return _tried(_OPERATORS[type(sign)], _number(value(left)), _number(value(right)))
        case ast.Slice(lower, upper, None):
            return slice(lower and value(lower), upper and value(upper))
        case ast.Subscript(whole, index):
            return _tried(operator.getitem, value(whole), value(index))
        case ast.Attribute(whole, "shape") if isinstance(found := value(whole), Tensor):
            return tuple(found.shape)
        case ast.Call(function, args, keywords):
            given = [one for part in args for one in _unpacked(part, known)]
            words = {word.arg: value(word.value) for word in keywords if word.arg not in _UNREAD}
            return _called(function, given, words, known)
    raise Unknown


def _called(function: ast.expr, given: Sequence[Any], words: Mapping[Any, Any], known: Mapping[str, Any]) -> Any:
    text = ast.unparse(function)
    if text in _FUNCTIONS:
        more = {"device": "meta"} if text in ("torch.empty", "torch.zeros") else {}
        return _tried(_FUNCTIONS[text], *given, **words, **more)
    match function:
        case ast.Attribute(whole, name) if name in _METHODS and isinstance(found := value_of(whole, known), Tensor):
            return _tried(getattr(found, name), *given, **words)
    raise Unknown


def _unpacked(node: ast.expr, known: Mapping[str, Any]) -> list[Any]:
    return list(value_of(node.value, known)) if isinstance(node, ast.Starred) else [value_of(node, known)]


def _number(value: Any) -> Any:
    if not isinstance(value, int | float):
        raise Unknown
    return value


def _tried(function: Any, *args: Any, **words: Any) -> Any:
    try:
        return function(*args, **words)
    except (RuntimeError, IndexError, ZeroDivisionError) as error:
        raise Wrong(str(error)) from error
    except (TypeError, ValueError, AttributeError) as error:  # it may be another function than this one
        raise Unknown from error
