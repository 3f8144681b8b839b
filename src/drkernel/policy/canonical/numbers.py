"""Numbers: a policy reads and writes six digits of them; a submission has all.

    x / math.sqrt(2)   ->   t0 = in0 / 1.41421   ->   x / 1.4142135623730951

Six digits are what a small policy copies without mistakes, and too few for an answer in float32.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

LONGEST = 8
"""Characters of a number that is told whole."""
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")


def rounded(value: float) -> str:
    """A finite number as it is told.

    >>> rounded(0.1), rounded(math.sqrt(2)), rounded(-1 / 3)
    ('0.1', '1.41421', '-0.333333')
    """
    text = repr(value)
    return text if len(text) <= LONGEST else repr(float(f"{value:.6g}"))


def with_more_digits(values: Iterable[Any]) -> dict[str, str]:
    """What is told of each number that has more digits, and the number; without signs.

    >>> with_more_digits([2, 0.5, -math.pi])
    {'3.14159': '3.141592653589793'}
    """
    numbers = [abs(value) for value in values if type(value) is float and math.isfinite(value)]
    return {rounded(number): repr(number) for number in numbers if rounded(number) != repr(number)}


def with_all_digits(code: str, numbers: Mapping[str, str]) -> str:
    """Code whose numbers are those that a policy was told of, if there are such."""
    return _NUMBER.sub(lambda found: numbers.get(found[0], found[0]), code) if numbers else code


class Rounded(ast.NodeTransformer):
    """Numbers as they are told."""

    def __init__(self, numbers: Mapping[str, str]):
        self._told = {number: float(told) for told, number in numbers.items()}

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        known = type(node.value) is float and repr(node.value) in self._told
        return ast.Constant(self._told[repr(node.value)]) if known else node
