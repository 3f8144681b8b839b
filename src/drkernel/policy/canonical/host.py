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
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Launch:
    """A kernel that a function launches."""

    kernel: str
    given: Sequence[ast.expr]
    """By place."""
    words: Mapping[str, ast.expr]
    known: Mapping[str, Any]
    """What is known there, by name."""
    programs: ast.expr

    def arguments(self, kernel: ast.FunctionDef) -> dict[str, ast.expr]:
        """What the kernel's arguments are given, by their names."""
        names = [argument.arg for argument in kernel.args.args]
        given = dict(zip(names, self.given, strict=False))
        return given | {word: value for word, value in self.words.items() if word in names}

    def value(self, given: ast.expr) -> Any:
        """What an argument is; None where it is not known."""
        try:
            return value_of(given, self.known)
        except (Unknown, Wrong):
            return None

    @property
    def grid(self) -> Sequence[Any]:
        """The numbers of programs; None for each that is not known."""
        match self.programs:
            case ast.Tuple(parts) if not any(isinstance(part, ast.Starred) for part in parts):
                return [self.value(part) for part in parts]
        found = self.value(self.programs)
        return found if isinstance(found, tuple) else [found] if isinstance(found, int) else [None] * 3


def launches(function: ast.FunctionDef, args: Sequence[Any]) -> Iterator[Launch]:
    """The kernels that a function launches, one after the other.

    Raises:
        Wrong: the function fails.
    """
    for statement, known in _statements(function, args):
        match statement:
            case ast.Expr(ast.Call(ast.Subscript(ast.Name(kernel), programs), given, words)):
                named = {word.arg: word.value for word in words if word.arg}
                yield Launch(kernel, given, named, dict(known), programs)


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
