"""Names in kernels whose type or existence hangs on a loop or a branch, which Triton's compiler does not take.

Python lets a name be a number before a loop and a block after it, or exist in one branch alone. A compiled loop or
branch gives it one type. Runs in simulated runners: the interpreter looks at a kernel's names as its loops go round and
its conditions are evaluated. What is known when a kernel is compiled (constants, whether a pointer is None) may decide
what it likes.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import triton.language as tl

CONDITION = "a condition"
"""The name of `condition` in kernels: no source can spell it."""


def names_stored(statements: list[ast.stmt]) -> tuple[str, ...]:
    """The names that these statements, and those in them, bind."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    return tuple(sorted({n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}))


def names_of(names: tuple[str, ...]) -> ast.Tuple:
    """An expression for a tuple of names."""
    return ast.Tuple([ast.Constant(name) for name in names], ast.Load())


class Carried:
    """The names that a loop binds, with the types that they had before it.

    Args:
        frame: of the kernel.
    """

    def __init__(self, frame: FrameType | None, names: tuple[str, ...], semantic: Any):
        self._frame, self._semantic = frame, semantic
        self._before = dict(_types(frame, names, semantic))

    def expect_same(self) -> None:
        """Checks the types at the end of a turn.

        Raises:
            TypeError: a name has another one.
        """
        for name, now in _types(self._frame, tuple(self._before), self._semantic):
            if now != (before := self._before[name]):
                raise TypeError(
                    f"`{name}` is {before} before the loop and {now} after a turn of it; a compiled loop needs one "
                    "type: give it that before the loop, as tl.zeros((BLOCK,), tl.float32) does"
                )


def with_condition(node: ast.If, used_later: set[str]) -> ast.If:
    """An `if` whose condition is evaluated by `condition`.

    Args:
        used_later: names that statements behind it use.
    """
    once = set(names_stored(node.body)) ^ set(names_stored(node.orelse))
    names = tuple(sorted(once & used_later))
    if names and not any(isinstance(end, (ast.Return, ast.Raise)) for end in (*node.body[-1:], *node.orelse[-1:])):
        node.test = ast.Call(ast.Name(CONDITION, ast.Load()), [node.test, names_of(names)], [])
    return node


def condition(value: Any, names: tuple[str, ...]) -> Any:
    """The value of a condition, where one branch alone binds these names, which are used later.

    Raises:
        NameError: it is not known before the kernel runs, and one of them does not exist yet.
    """
    if isinstance(value, tl.tensor):
        known = sys._getframe(1).f_locals
        if missing := [name for name in names if name not in known]:
            raise NameError(
                f"`{missing[0]}` exists in one branch of this condition alone, and is used later; to the compiler it "
                "does not exist then: bind it before the `if`"
            )
    return value


def used_behind(function: ast.FunctionDef) -> dict[int, set[str]]:
    """Of each `if` of a function, by its line: the names that are read behind it, or anywhere in a loop around it."""
    found: dict[int, set[str]] = {}

    def visit(statements: list[ast.stmt], later: set[str]) -> None:
        for place, statement in enumerate(statements):
            behind = later | _read(statements[place + 1 :])
            if isinstance(statement, ast.If):
                found[statement.lineno] = behind
            for inner in _bodies(statement):
                visit(inner, behind)

    visit(function.body, set())
    return found


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse"):
        if inner := getattr(statement, field, None):
            yield inner


def _read(statements: list[ast.stmt]) -> set[str]:
    nodes = (node for statement in statements for node in ast.walk(statement))
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _types(frame: FrameType | None, names: tuple[str, ...], semantic: Any) -> Iterator[tuple[str, str]]:
    """The types of numbers and blocks among a frame's names, in words. Constants are numbers of their kind."""
    known = frame.f_locals if frame else {}
    for name in names:
        value = known.get(name)
        value = value.value if isinstance(value, tl.constexpr) else value
        if isinstance(value, int) and not isinstance(value, bool):
            value = semantic.to_tensor(int(value))
        elif isinstance(value, float):
            value = semantic.to_tensor(value)
        if isinstance(value, tl.tensor):
            kind = value.type
            yield name, f"{kind.scalar}{list(map(int, kind.shape))}" if kind.is_block() else str(kind)


def frame_of_kernel() -> FrameType | None:
    """The frame that iterates over the generator which calls this."""
    frame = inspect.currentframe()
    generator = frame.f_back if frame else None
    return generator.f_back if generator else None
