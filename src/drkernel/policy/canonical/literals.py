"""Which numbers a source gives as they are, by where they stand: those follow from no size."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Sequence, Set

MAKERS = ("zeros", "ones", "full", "arange", "empty", "new_zeros", "new_ones", "new_full", "new_empty", "eye")
_SHAPING = {"view": 0, "reshape": 0, "unflatten": 1, "Unflatten": 1, "repeat_interleave": 0, "repeat": 0}
_SHAPING |= dict.fromkeys(MAKERS, 0)
"""Calls that are given sizes, and how many other arguments come first."""

Sizes = tuple[int | None, ...]
"""What a call is given, with None for what is no number."""


@dataclasses.dataclass(frozen=True)
class Literals:
    """Numbers that a source has as they are."""

    points: Set[float] = frozenset()
    """Those with a point."""
    whole: Set[int] = frozenset()
    shapes: Sequence[Sizes] = ()
    """The sizes that calls give a tensor: (None, None, 4) of `x.view(b, c // 4, 4)`."""
    ends: Set[int] = frozenset()
    """Whole ones in slices."""
    pooled: Set[int] = frozenset()
    """Whole ones that pools are given."""

    @classmethod
    def of(cls, source: str) -> Literals:
        nodes = list(ast.walk(ast.parse(source)))
        numbers = [node.value for node in nodes if isinstance(node, ast.Constant)]
        slices = (part for node in nodes if isinstance(node, ast.Slice) for part in (node.lower, node.upper))
        pools = (node for node in nodes if isinstance(node, ast.Call) and "pool" in ast.unparse(node.func).lower())
        return cls(
            frozenset(number for number in numbers if type(number) is float),
            frozenset(number for number in numbers if type(number) is int),
            tuple(sizes for node in nodes if (sizes := _sizes(node))),
            frozenset(number for part in slices if part for number in _whole(part)),
            frozenset(number for node in pools for number in _whole(node)),
        )

    @property
    def shaping(self) -> Set[int]:
        """Whole ones that stand alone where a shape is given."""
        return frozenset(size for sizes in self.shapes for size in sizes if size not in (None, -1))

    def given(self, sizes: Sequence[int]) -> list[bool]:
        """Which of the last sizes of a shape are numbers of the source. Where several calls give such a shape, the one
        with the most numbers counts."""
        ends = [given[-len(sizes) :] for given in self.shapes if len(given) >= len(sizes)]
        fitting = [end for end in ends if all(a in (None, -1, b) for a, b in zip(end, sizes, strict=True))]
        numbers = [[a not in (None, -1) for a in end] for end in fitting]
        return max(numbers, key=sum, default=[False] * len(sizes))


def _whole(node: ast.AST) -> Iterator[int]:
    yield from (part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and type(part.value) is int)


def _sizes(node: ast.AST) -> Sizes:
    """The sizes that a call gives a tensor."""
    match node:
        case ast.Call(ast.Attribute(_, name) | ast.Name(name), given) if name in _SHAPING:
            parts = [
                part
                for a in given[_SHAPING[name] :]
                for part in (a.elts if isinstance(a, ast.Tuple | ast.List) else [a])
            ]
            return tuple(_number(part) for part in parts)
    return ()


def _number(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(int() as value) if type(value) is int:
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(1)):
            return -1
    return None
