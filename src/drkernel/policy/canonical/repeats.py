"""Calls of a completion's own functions, wherever the reference has the lines that they stand for.

    t0 = self.m0(in0)   # F.conv2d(...)
    t1 = F.relu(t0)
    t2 = t1 + in0                            t2 = f1(t0, in0)    <-- a completion, so
    t3 = self.m1(t2)    # F.conv2d(...)
    t4 = F.relu(t3)
    t5 = t4 + t2                             t5 = f1(t3, t2)

A completion that changes a block of a network changes all blocks that are alike. They have the same lines but for
names: the same calls, modules with the same arguments, values of the same rank and dtype whose dimensions are 1 in the
same places, and windows of the same size.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from drkernel.policy.canonical.told import Line, Told, names_in

_NAME = re.compile(r"\bself\.[mnr]\d+\b|\bt\d+\b|\bin\d+\b")
_VALUE = re.compile(r"t\d+|in\d+")
_WEIGHT = re.compile(r"(?<= )\(([\d, ]*)\)")
_NORMED = re.compile(r"normalized_shape=\([\d, ]*\)")
"""In what is told of a module: shapes of its tensors, and those of what it takes."""


def repeated(body: Sequence[ast.stmt], functions: Collection[str], told: Told) -> dict[str, Line]:
    """The calls that follow from those of a completion, by what they make.

    Args:
        body: of a completion's `forward`, in canonical names.
        functions: the names of the completion's own functions.
    """
    calls = [one for one in body if _made_by(one, functions) in told.makers]
    if not calls:
        return {}
    makers, uses = told.makers, Counter(name for line in told.lines for name in line.reads)
    found: dict[str, Line] = {}
    taken = {name for statement in body for name in names_in(statement, ast.Store)}
    for statement in calls:
        first, text = _made_by(statement, functions), ast.unparse(statement).partition(" = ")[2]
        stops = set(_NAME.findall(text))
        for line in told.lines:
            if len(line.makes) != 1 or line.makes[0] in taken or line.makes[0] == first:
                continue
            blocks = _Blocks(makers, told, stops, uses)
            if blocks.alike(first, line.makes[0]) and stops <= blocks.names.keys():
                made = f"{line.makes[0]} = {_NAME.sub(blocks.renamed, text)}"
                found[line.makes[0]] = Line(line.makes, frozenset(names_in(ast.parse(made), ast.Load)), made, made)
                taken.add(line.makes[0])
    return found


def without_repeats(body: Sequence[ast.stmt], functions: Collection[str], told: Told) -> list[ast.stmt]:
    """The statements of a `forward` without the calls that follow from those before them."""
    kept: list[ast.stmt] = []
    following: dict[str, Line] = {}
    for statement in body:
        made = _made_by(statement, functions)
        if made in following and following[made].text == ast.unparse(statement):
            continue
        kept.append(statement)
        following = repeated(kept, functions, told) if made else following
    return kept


def _made_by(statement: ast.stmt, functions: Collection[str]) -> str:
    """What a statement sets to the result of one of the functions; empty where it is no such statement."""
    match statement:
        case ast.Assign([ast.Name(made)], ast.Call(ast.Name(function))) if function in functions:
            return made
    return ""


@dataclass
class _Blocks:
    """Two blocks of lines: the one that a call stands for, and another one."""

    makers: Mapping[str, Line]
    told: Told
    stops: Collection[str]
    """What the call reads."""
    uses: Mapping[str, int]
    """How many lines read each value: what a block alone reads, the other block alone reads, too."""
    names: dict[str, str] = field(default_factory=dict)
    """Of the other block, by those of the first."""

    def alike(self, one: str, other: str) -> bool:
        """Whether two values are made alike, and are of one kind."""
        if one in self.names:
            return self.names[one] == other
        is_result, self.names[one] = not self.names, other
        if not self._same_kind(one, other):
            return False
        if one in self.stops:
            return True
        if one not in self.makers or other not in self.makers or not (is_result or self.uses[one] == self.uses[other]):
            return False
        return self._same_lines(self.makers[one], self.makers[other])

    def renamed(self, name: re.Match[str]) -> str:
        return self.names[name[0]]

    def _same_lines(self, one: Line, other: Line) -> bool:
        if len(one.makes) > 1 or len(other.makes) > 1 or _skeleton(one) != _skeleton(other):
            return False
        pairs = zip(_NAME.findall(_made(one)), _NAME.findall(_made(other)), strict=True)
        return all(self._same_name(a, b) for a, b in pairs)

    def _same_name(self, one: str, other: str) -> bool:
        if one[:6] != other[:6] and not (_VALUE.fullmatch(one) and _VALUE.fullmatch(other)):
            return False
        if not one.startswith("self."):
            return self.alike(one, other)
        if not (one == other if one.startswith("self.r") else self._same_held(one, other)):
            return False
        return self.names.setdefault(one, other) == other

    def _same_kind(self, one: str, other: str) -> bool:
        shapes, dtypes = self.told.shapes, self.told.dtypes
        ones = [[size == 1 for size in shapes.get(name, ())] for name in (one, other)]
        return ones[0] == ones[1] and dtypes.get(one) == dtypes.get(other)

    def _same_held(self, one: str, other: str) -> bool:
        """Whether two modules have the same windows, or two whole numbers are equal."""
        if not one.startswith("self.n"):
            return self._same_windows(one, other)
        numbers = [self.told.numbers.get(name.removeprefix("self.")) for name in (one, other)]
        return one == other or numbers[0] == numbers[1] is not None

    def _same_windows(self, one: str, other: str) -> bool:
        """Whether tensors of two modules have the same rank, and sizes behind the second dimension."""
        sizes = [{role: (len(shape), shape[2:]) for role, shape in self.told.held(name)} for name in (one, other)]
        return sizes[0] == sizes[1]


def _made(line: Line) -> str:
    """What a line computes. A module that is not told says it less well than what is told."""
    made = line.text.partition(" = ")[2]
    return line.told.partition("  # ")[0].partition(" = ")[2] if made.startswith("self.u") else made


@lru_cache(maxsize=4096)
def _skeleton(line: Line) -> tuple[str, str]:
    """A line without names: its expression, and what is told of its module."""
    module = line.told.partition("  # ")[2].partition("; ")[0]
    is_module = re.match(r"(F|nn|torch)\.", module)
    told = _WEIGHT.sub(_window, _NORMED.sub("", module)) if is_module else ""
    return _NAME.sub("_", _made(line)), told


def _window(shape: re.Match[str]) -> str:
    """A shape without the sizes of its first two dimensions, which are numbers of channels."""
    sizes = [size for size in shape[1].replace(" ", "").split(",") if size]
    return f"({', '.join(['_'] * len(sizes[:2]) + sizes[2:])})"
