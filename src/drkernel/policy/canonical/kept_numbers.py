"""Numbers of the reference's lines that a completion's kernels have to have.

    t1 = torch.addcmul(in1, t0, self.m1, value=0.75)         <-- the reference
    t2 = F.elu(t1, alpha=0.5)

    t1 = in1 + t0 * p0                                       <-- a kernel that stands for both: it has no 0.75
    t2 = tl.where(t1 > 0, t1, 0.5 * (tl.exp(t1) - 1))

What a line is given by name, or by a sign, says what it computes. A kernel has it as it is, inverted, or as what is
left of one. Sizes, dimensions, groups and exponents may be written in other ways.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

from drkernel.policy.canonical.told import Line, names_in

_FREE = {"dim", "dims", "dim0", "dim1", "start_dim", "end_dim", "groups", "num_groups", "normalized_shape", "size"}
_FREE |= {"repeats", "num_classes", "n", "training", "end", "start", "step", "length", "ord", "p", "output_size"}
"""Arguments that kernels may say in other ways."""
_NEAR = 1e-5


def has_numbers(lines: Iterable[Line], name: str, functions: Mapping[str, ast.FunctionDef]) -> bool:
    """Whether a function, with the functions that it uses, has the numbers of the lines that it stands for."""
    found = set(_constants(name, functions))
    return all(_is_there(abs(number), found) for line in lines for number in _numbers(line))


def _is_there(number: float, found: Iterable[float]) -> bool:
    wanted = [number, *([1 - number] if number < 1 else []), *([1 / number] if number else [])]
    return any(abs(one - other) <= _NEAR * one for one in wanted for other in found)


def _constants(name: str, functions: Mapping[str, ast.FunctionDef]) -> Iterator[float]:
    waiting, seen = [name], set[str]()
    while waiting:
        name = waiting.pop()
        if name in functions and name not in seen:
            seen.add(name)
            waiting += names_in(functions[name])
            yield from (abs(part) for node in ast.walk(functions[name]) for part in _number(node))


def _number(node: ast.AST) -> Iterator[float]:
    match node:
        case ast.Constant(int() | float() as value) if not isinstance(value, bool):
            yield value


def _numbers(line: Line) -> Iterator[float]:
    """The numbers that a line is given; those of a module's call stand beside it."""
    code, _, beside = line.told.partition("  #")
    module = re.match(r"\s*F\.\w+\(.*?\)(?=;|$)", beside)
    text = re.sub(r"\w+ \([\d, ]*\)", "0", module[0].strip()) if module else code.partition(" = ")[2]
    try:
        called = ast.parse(text, mode="eval").body
    except SyntaxError:
        return
    match called:
        case ast.Call():
            given = [word.value for word in called.keywords if word.arg not in _FREE]
        case ast.BinOp(left, sign, right) if not isinstance(sign, ast.Pow):
            given = [left, right]
        case ast.Compare(left, _, right):
            given = [left, *right]
        case _:
            given = []
    for value in given:
        for part in value.elts if isinstance(value, ast.Tuple) else [value]:
            yield from _number(part.operand if isinstance(part, ast.UnaryOp) else part)
