"""How far the kernels of a call read and write, found without running them.

    for s in range(3 * tl.cdiv(C, 32)):                      a convolution of 3 by 3 has 9 taps, so this kernel
        t = s // tl.cdiv(C, 32)                              reads a third of the weight
        j = s % tl.cdiv(C, 32) * 32 + tl.arange(0, 32)
        y = tl.load(p0_ptr + (t * N + c) * C + j[:, None], mask=(c < N) & (j[:, None] < C))

Whole numbers of a kernel are intervals here: an index of programs lies below their number, a mask that compares it
bounds it further. An interval is never too small, so a kernel of which the last place is below the last element does
not read, or write, all elements. What does not follow from sizes (a place that is loaded) is unknown, and may be any.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from drkernel.policy.canonical import host
from drkernel.policy.canonical.told import names_in

Interval = tuple[float, float]
_ANY: Interval = (-math.inf, math.inf)
_COUNTED = re.compile(r"tl\.program_id\(\d\) \* \w+ \+ tl\.arange\(0, \w+\)")
"""An index of which each program has a block."""


@dataclass
class Reach:
    """The last places that the kernels of a function read and write, by the names that the function has for tensors.
    -1: none."""

    read: dict[str, float] = field(default_factory=dict)
    written: dict[str, float] = field(default_factory=dict)
    surely: dict[str, float] = field(default_factory=dict)
    """The last places that they do read or write, as far as that is sure."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """What the names stand for, without data, where they are given to a kernel."""


def reach(function: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef], given: Sequence[Any]) -> Reach:
    """How far the kernels that a function launches read and write.

    Args:
        functions: those of the completion, kernels among them, by name.
        given: the function's arguments: tensors without data, numbers, None where one is not known.

    Raises:
        Wrong: the function fails.
    """
    found = Reach()
    for launch in host.launches(function, given):
        if launch.kernel not in functions:
            continue
        texts = launch.arguments(functions[launch.kernel])
        known = {name: launch.value(text) for name, text in texts.items()}
        kernel = _Kernel(known, launch.grid)
        kernel.run(functions[launch.kernel].body)
        moved = kernel.tensors.intersection(names_in(functions[launch.kernel], ast.Store))
        kernel.read |= dict.fromkeys(moved, math.inf)
        kernel.written |= dict.fromkeys(moved, math.inf)
        for name, text in texts.items():
            if isinstance(value := known[name], Tensor):
                own = ast.unparse(text)
                found.tensors[own] = value
                every = (kernel.read, found.read), (kernel.written, found.written), (kernel.surely, found.surely)
                for places, ends in every:
                    ends[own] = max(ends.get(own, -1), places.get(name, -1))
    return found


class _Kernel:
    """A kernel's names, with intervals."""

    def __init__(self, known: Mapping[str, Any], grid: Sequence[Any]):
        """known: the arguments by name. grid: numbers of programs, None where one is not known."""
        self.tensors = {name for name, value in known.items() if isinstance(value, Tensor)}
        self.unknown = {name for name, value in known.items() if value is None}
        self.known: dict[str, Interval] = {
            name: (value, value) for name, value in known.items() if isinstance(value, int | float)
        }
        self.grid = grid
        self.made: dict[str, ast.expr] = {}
        """What names were set to, which masks are made of."""
        self.read: dict[str, float] = {}
        self.written: dict[str, float] = {}
        self.surely: dict[str, float] = {}

    def run(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            for node in ast.walk(statement) if not isinstance(statement, ast.For | ast.While | ast.If) else ():
                self._access(node)
            match statement:
                case ast.Assign([ast.Name(name)], value):
                    self.known[name], self.made[name] = self.interval(value), value
                case ast.For(ast.Name(name), ast.Call(_, ends)):
                    self._forget(statement)
                    self.known[name] = self._counted(ends)
                    self.run(statement.body)
                    self._forget(statement)
                case _:
                    self._forget(statement)
                    for part in ("body", "orelse"):
                        self.run(getattr(statement, part, []))
                    self._forget(statement)

    def _forget(self, statement: ast.stmt) -> None:
        for name in names_in(statement, ast.Store):
            self.known[name] = _ANY
            self.made.pop(name, None)

    def _counted(self, ends: Sequence[ast.expr]) -> Interval:
        """Where the values of a `range` lie."""
        found = [self.interval(end) for end in ends]
        if len(found) == 1:
            return 0, max(0, found[0][1] - 1)
        if len(found) == 2:
            return found[0][0], max(found[0][0], found[1][1] - 1)
        return min(low for low, _ in found[:2]), max(high for _, high in found[:2])

    def _access(self, node: ast.AST) -> None:
        if not isinstance(node, ast.Call):
            return
        kind = ast.unparse(node.func).removeprefix("tl.")
        if kind in ("load", "store") or kind.startswith("atomic_"):
            self._reached(kind, node.args[0], [word.value for word in node.keywords if word.arg == "mask"])
            return
        for given in (*node.args, *(word.value for word in node.keywords)):
            if isinstance(given, ast.Name) and given.id in self.tensors:  # another function has it
                self.read[given.id] = self.written[given.id] = math.inf

    def _reached(self, kind: str, place: ast.expr, masks: Sequence[ast.expr]) -> None:
        pointers = [name for name in names_in(place) if name in self.tensors]
        if not pointers and self.unknown.intersection(names_in(place)):
            return  # a tensor of unknown size
        before = dict(self.known)
        for mask in masks:
            self._bound(mask)
        end = self._offset(place, pointers[0])[1] if len(pointers) == 1 else math.inf
        match place:
            case ast.BinOp(ast.Name(pointer), ast.Add(), ast.Name(index)) if self._is_counted(index, masks):
                if pointer in self.tensors and not math.isinf(end):
                    self.surely[pointer] = max(self.surely.get(pointer, -1), end)
        self.known = before
        for name in pointers or self.tensors:  # a place that was computed before may be of any tensor
            for ends in ([self.read] if kind != "store" else []) + ([self.written] if kind != "load" else []):
                ends[name] = max(ends.get(name, -1), end)

    def _is_counted(self, index: str, masks: Sequence[ast.expr]) -> bool:
        """Whether an index counts all that programs and lanes do, and masks compare names alone: it has its end."""
        waiting = list(masks)
        while waiting:
            match waiting.pop():
                case ast.BinOp(left, ast.BitAnd(), right):
                    waiting += [left, right]
                case ast.Name(name) if name in self.made:
                    waiting.append(self.made[name])
                case ast.Compare(ast.Name(), [ast.Lt()], [_]):
                    pass
                case _:
                    return False
        text = re.sub(r"\[[:, None]+\]", "", ast.unparse(self.made[index])) if index in self.made else ""
        return bool(_COUNTED.fullmatch(text))

    def _offset(self, place: ast.expr, pointer: str) -> Interval:
        """How far behind a pointer a place is."""
        match place:
            case ast.Name(name) if name == pointer:
                return (0, 0)
            case ast.BinOp(left, ast.Add(), right) if pointer in names_in(left):
                return _sum(self._offset(left, pointer), self.interval(right))
            case ast.BinOp(left, ast.Add(), right) if pointer in names_in(right):
                return _sum(self.interval(left), self._offset(right, pointer))
        return _ANY

    def _bound(self, mask: ast.expr) -> None:
        """Narrows the names that a mask compares."""
        match mask:
            case ast.BinOp(left, ast.BitAnd(), right):
                self._bound(left)
                self._bound(right)
            case ast.Name(name) if name in self.made:
                self._bound(self.made[name])
            case ast.Compare(ast.Name(name) | ast.Subscript(ast.Name(name)), [ast.Lt()], [end]) if name in self.known:
                low, high = self.known[name]
                self.known[name] = low, min(high, self.interval(end)[1] - 1)

    def interval(self, node: ast.expr) -> Interval:
        """Where the values of an expression lie."""
        match node:
            case ast.Constant(bool()):
                return 0, 1
            case ast.Constant(int() | float() as value):
                return value, value
            case ast.Name(name):
                return self.known.get(name, _ANY)
            case ast.Subscript(whole, _):
                return self.interval(whole)
            case ast.UnaryOp(ast.USub(), operand):
                low, high = self.interval(operand)
                return -high, -low
            case ast.Compare() | ast.BoolOp():
                return 0, 1
            case ast.BinOp(left, sign, right):
                return _joined(sign, self.interval(left), self.interval(right))
            case ast.Call(function, args):
                return self._called(ast.unparse(function), function, args)
        return _ANY

    def _called(self, text: str, function: ast.expr, args: Sequence[ast.expr]) -> Interval:
        if isinstance(function, ast.Attribute) and function.attr == "to":
            return self.interval(function.value)
        found = [self.interval(arg) for arg in args]
        match text, found:
            case "tl.program_id", [(axis, _)]:
                count = self.grid[int(axis)] if 0 <= axis < len(self.grid) else 1
                return (0, count - 1) if isinstance(count, int) else (0, math.inf)
            case "tl.arange", [(low, _), (_, high)]:
                return low, high - 1
            case "tl.cdiv", [one, other]:
                low, high = _joined(ast.FloorDiv(), one, other)
                return low, high + 1
            case "tl.where", [_, one, other]:
                return min(one[0], other[0]), max(one[1], other[1])
            case "tl.minimum" | "min", [one, other]:
                return min(one[0], other[0]), min(one[1], other[1])
            case "tl.maximum" | "max", [one, other]:
                return max(one[0], other[0]), max(one[1], other[1])
        return _ANY


def _sum(one: Interval, other: Interval) -> Interval:
    return one[0] + other[0], one[1] + other[1]


def _joined(sign: ast.operator, one: Interval, other: Interval) -> Interval:
    match sign:
        case ast.Add():
            return _sum(one, other)
        case ast.Sub():
            return one[0] - other[1], one[1] - other[0]
        case ast.Mult():
            found = [a * b if a and b else 0 for a in one for b in other]
            return min(found), max(found)
        case ast.FloorDiv() if other[0] > 0:
            found = [_divided(a, b) for a in one for b in other]
            return min(found), max(found)
        case ast.Mod() if other[0] > 0:
            high = other[1] - 1
            return (0, min(one[1], high)) if one[0] >= 0 else (min(0, -high), high)
    return _ANY


def _divided(a: float, b: float) -> float:
    if math.isinf(b):
        return 0 if a >= 0 else -1
    return a if math.isinf(a) else a // b
