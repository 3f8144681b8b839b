"""Sizes as expressions: `height + 2`, `2 * hidden`. A dimension knows its published and its small value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Dim:
    """One dimension of a shape: a term over named sizes plus a number.

    >>> height = Dim("height", 224, 16)
    >>> (height + 2) // 2
    (height + 2) // 2
    >>> (2 * height - 1).full, (2 * height - 1).small, (2 * height - 1).at({"height": 5})
    (447, 31, 9)
    """

    term: str
    """The expression without its number; empty for a plain number."""
    term_full: int
    term_small: int
    offset: int = 0

    @property
    def text(self) -> str:
        """The expression in Python, over names of sizes."""
        if not self.term:
            return str(self.offset)
        return self.term + (f" {'-' if self.offset < 0 else '+'} {abs(self.offset)}" if self.offset else "")

    @property
    def full(self) -> int:
        """Its value in the task as published."""
        return self.term_full + self.offset

    @property
    def small(self) -> int:
        """Its value on the simulated device."""
        return self.term_small + self.offset

    @property
    def is_number(self) -> bool:
        return not self.term

    def at(self, sizes: Mapping[str, int]) -> int:
        """Its value where sizes have these values."""
        return int(eval(self.text, {"__builtins__": {}}, dict(sizes)))

    def __repr__(self) -> str:
        return self.text

    def __add__(self, other: Dim | int) -> Dim:
        other = as_dim(other)
        if self.term and other.term:
            full, small = self.term_full + other.term_full, self.term_small + other.term_small
            return Dim(f"{self.term} + {other.term}", full, small, self.offset + other.offset)
        term = self if self.term else other
        return Dim(term.term, term.term_full, term.term_small, self.offset + other.offset)

    def __sub__(self, other: int) -> Dim:
        return self + -other

    def __mul__(self, other: Dim | int) -> Dim:
        other = as_dim(other)
        if other.is_number and self.is_number:
            return as_dim(self.offset * other.offset)
        for one, factor in ((self, other), (other, self)):
            if factor.is_number and factor.offset == 1:
                return one
        left = self.text if re.fullmatch(r"\w+( \* \w+)*", self.text) else f"({self.text})"
        return Dim(f"{left} * {_factor(other)}", self.full * other.full, self.small * other.small)

    def __rmul__(self, other: int) -> Dim:
        return as_dim(other) * self

    def __floordiv__(self, other: Dim | int) -> Dim:
        other = as_dim(other)
        if other.is_number and other.offset == 1:
            return self
        if self.is_number and other.is_number:
            return as_dim(self.offset // other.offset)
        return Dim(f"{_factor(self)} // {_factor(other)}", self.full // other.full, self.small // other.small)


Shape = tuple[Dim, ...]


def as_dim(value: Dim | int) -> Dim:
    """A number as a dimension; a dimension as it is."""
    return value if isinstance(value, Dim) else Dim("", 0, 0, value)


def parse(text: str, sizes: Mapping[str, Dim]) -> Dim:
    """The dimension that an expression (`Dim.text`) over named sizes is."""
    return as_dim(eval(text, {"__builtins__": {}}, dict(sizes)))


def same(first: Dim, second: Dim) -> bool:
    """Whether two dimensions have the same size, published and small."""
    return (first.full, first.small) == (second.full, second.small)


def alike(first: Shape, second: Shape) -> bool:
    """Whether two shapes have the same sizes, published and small."""
    return len(first) == len(second) and all(map(same, first, second))


def is_one(dim: Dim) -> bool:
    return dim.full == dim.small == 1


def product(shape: Shape) -> Dim:
    """The number of elements, as an expression."""
    total = as_dim(1)
    for dim in shape:
        total = total * dim
    return total


def count(shape: Shape, small: bool = False) -> int:
    """How many elements a tensor has."""
    total = 1
    for dim in shape:
        total *= dim.small if small else dim.full
    return total


def names_in(text: str) -> list[str]:
    """The names of sizes in an expression, in order, once each."""
    return list(dict.fromkeys(re.findall(r"[A-Za-z_]\w*", text)))


def _factor(dim: Dim) -> str:
    """The text as an operand of a product."""
    return dim.text if re.fullmatch(r"\w+", dim.text) else f"({dim.text})"
