"""The source of a task or of a submission: the numbers in it, and other texts in their place."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

FORWARD_INPUTS = "get_forward_inputs"
"""What makes a forward's inputs in a backward pass (`tasks.backward`)."""
INPUTS = ("get_inputs", "get_init_inputs", FORWARD_INPUTS)
"""The functions that make inputs and constructor arguments."""
_MOST_BITS = 64
_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


def value_of(node: ast.expr) -> int | None:
    """The value of an expression of whole numbers; None for all else.

    >>> value_of(ast.parse("1 << 14", mode="eval").body)
    16384
    """
    match node:
        case ast.Constant(value=value) if type(value) is int:
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = value_of(operand)
            return None if value is None else -value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            first, second = value_of(left), value_of(right)
            if first is None or second is None or (isinstance(op, (ast.Pow, ast.LShift)) and second > _MOST_BITS):
                return None
            try:
                value = _OPERATORS[type(op)](first, second)
            except (ArithmeticError, ValueError):  # by zero, or shifts to the other side
                return None
            return value if type(value) is int else None  # 2 ** -1 is none
    return None


def replaced(source: str, changes: Mapping[ast.expr, str]) -> str:
    """The source with other texts for expressions of one line, which do not overlap."""
    lines = source.encode().splitlines(keepends=True)
    for node in sorted(changes, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = line[: node.col_offset] + changes[node].encode() + line[node.end_col_offset :]
    return b"".join(lines).decode()
