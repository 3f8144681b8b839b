"""Which conditions guard so little that it makes no difference whether programs without data do it.

Where data decide a condition, a dry run may go past what it guards. So that is a small step: few cheap instructions on
elements along one dimension, all of which it loads itself. What it loads and stores is counted with data.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Container

MOST = 32
"""Instructions per element. A GPU loads an element of four bytes and stores it in the time of 60."""

_CALLS = {
    "float": 0, "tl.arange": 0, "tl.load": 1, "tl.store": 1, "tl.atomic_add": 1, "tl.where": 1, "tl.maximum": 1,
    "tl.minimum": 1, "tl.abs": 1, "tl.sum": 2, "tl.max": 2, "tl.min": 2, "tl.exp": 4, "tl.sqrt": 8, "tl.rsqrt": 14,
}  # fmt: skip
_OPERATORS: dict[type, int] = {ast.Div: 6, ast.FloorDiv: 16, ast.Mod: 16, ast.MatMult: MOST + 1}


def is_one_step(node: ast.stmt, is_place: Callable[[ast.expr], bool]) -> bool:
    """Whether it is a condition without an alternative that guards no more than that.

    Args:
        is_place: says of an expression whether it is a number or places along one dimension, which no data decide.
    """
    if not isinstance(node, ast.If) or node.orelse:
        return False
    own: set[str] = set()
    instructions = 0.0
    for statement in node.body:
        match statement:
            case ast.Assign([ast.Name(name)], value):
                instructions += _instructions(value, own, is_place)
                own.add(name)
            case ast.Expr(value):
                instructions += _instructions(value, own, is_place)
            case _:
                return False
    return instructions <= MOST


def _instructions(value: ast.expr, own: Container[str], is_place: Callable[[ast.expr], bool]) -> float:
    """Instructions per element of an expression; infinite where it may do more, or read what is computed elsewhere."""
    match value:
        case ast.Constant():
            return 0.0
        case ast.Name(name):
            return 0.0 if name in own or is_place(value) else math.inf
        case ast.Attribute(ast.Name("tl")):
            return 0.0
        case ast.BinOp(left, operator, right):
            parts, cost = [left, right], float(_OPERATORS.get(type(operator), 1))
        case ast.UnaryOp(_, operand):
            parts, cost = [operand], 1.0
        case ast.Compare(left, [_], [right]):
            parts, cost = [left, right], 1.0
        case ast.Call(ast.Attribute(block, "to"), given, []):
            parts, cost = [block, *given], 1.0
        case ast.Call(function, given, keys):
            parts, cost = [*given, *(key.value for key in keys)], float(_CALLS.get(ast.unparse(function), math.inf))
        case _:
            return math.inf
    return cost + sum(_instructions(part, own, is_place) for part in parts)
