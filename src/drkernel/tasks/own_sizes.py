"""A task's source with the values of module constants where the network reads their names.

    HEADS = 12                                    HEADS = 12
    class Model(nn.Module):                       class Model(nn.Module):
        def forward(self, x):              ->         def forward(self, x):
            return x.unflatten(-1, (HEADS, -1))           return x.unflatten(-1, (12, -1))

A submission does not see these names: it has the numbers, or a copy of the constants. So they are sizes of the network
as written. Those of inputs change without them, and where they become smaller, the submission's do, too.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping

from drkernel.tasks.scopes import SCOPES, Names, bound_by, own_nodes
from drkernel.tasks.sources import INPUTS, replaced, value_of

_CALLS = {"abs", "dict", "float", "int", "len", "list", "max", "min", "range", "round", "sum", "tuple"}
_VALUES = (
    ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.UnaryOp, ast.BinOp, ast.Subscript, ast.Starred,
    ast.operator, ast.unaryop, ast.expr_context, ast.keyword,
)  # fmt: skip
"""What expressions of numbers are made of, beside names and calls."""
_READS = {"count", "get", "index", "items", "keys", "values"}
"""Methods of lists and dicts that change nothing."""


def with_own_sizes(source: str) -> str:
    """The source, where the network's classes and functions read numbers instead of the names of module constants.

    A constant is assigned once, and is an expression of numbers: no tensor. Lines keep their numbers.
    """
    tree = ast.parse(source)
    for_inputs = {name for node in tree.body if _is_named(node, INPUTS) for name in _read(node)}
    network = [n for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef) and not _is_named(n, INPUTS)]
    reader = _Reader(tree, _constants(tree))
    for node in network:
        if isinstance(node, ast.ClassDef) or node.name not in for_inputs:
            reader.visit(node)
    return replaced(source, reader.changes)


def _is_named(node: ast.stmt, names: tuple[str, ...]) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name in names


def _read(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """The values of module constants that hold whole numbers, by name."""
    often = Counter(name for node in own_nodes(tree) for name in bound_by(node))
    elsewhere = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    unsteady = elsewhere | _changed(tree) | {name for name, times in often.items() if times > 1}
    known: dict[str, ast.expr] = {}
    for statement in tree.body:
        for name, value in _assigned(statement):
            number = _number(value, known, often)
            if number is not None and name not in unsteady:
                known[name] = number
    return known


def _assigned(statement: ast.stmt) -> list[tuple[str, ast.expr]]:
    """The names that a statement gives values."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return []
    value = statement.value
    found: list[tuple[ast.expr, ast.expr]] = []
    for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
        if not isinstance(target, ast.Tuple):
            found.append((target, value))
        elif isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            found += zip(target.elts, value.elts, strict=True)
    return [(name.id, part) for name, part in found if isinstance(name, ast.Name)]


def _changed(tree: ast.Module) -> set[str]:
    """The names of what may be changed in place: `sizes.append(4)`, `sizes[0] = 4`, `sizes += [4]`."""
    return {holder.id for node in ast.walk(tree) if isinstance(holder := _holder(node), ast.Name)}


def _holder(node: ast.AST) -> ast.expr | None:
    """What a node may change in place."""
    match node:
        case ast.Attribute(value=holder, attr=attr) if attr not in _READS:
            return holder
        case ast.Subscript(value=holder, ctx=ast.Store() | ast.Del()):
            return holder
        case ast.AugAssign(target=holder):
            return holder
    return None


def _number(value: ast.expr, known: Mapping[str, ast.expr], bound: Mapping[str, int]) -> ast.expr | None:
    """An expression without names, as short as it can be; None where it has others, or no whole number."""
    value = _Known(known).visit(ast.parse(ast.unparse(value), mode="eval").body)
    called = {node.func for node in ast.walk(value) if isinstance(node, ast.Call)}
    inside = {part for function in called for part in ast.walk(function)}
    calls_alone = all(_is_plain(function) and ast.unparse(function) not in bound for function in called)
    others = [n for n in ast.walk(value) if n not in inside and not isinstance(n, (*_VALUES, ast.Call))]
    has_whole = any(isinstance(node, ast.Constant) and type(node.value) is int for node in ast.walk(value))
    if others or not calls_alone or not has_whole:
        return None
    whole = value_of(value)
    return value if whole is None else ast.Constant(whole)


def _is_plain(function: ast.expr) -> bool:
    return ast.unparse(function) in _CALLS or ast.unparse(function).startswith("math.")


class _Known(ast.NodeTransformer):
    """Values in the place of names."""

    def __init__(self, known: Mapping[str, ast.expr]):
        self._known = known

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._known.get(node.id, node)


class _Reader(ast.NodeVisitor):
    """Finds where module constants are read."""

    def __init__(self, tree: ast.Module, constants: Mapping[str, ast.expr]):
        self.changes: dict[ast.expr, str] = {}
        self._names, self._constants = Names(tree), constants

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr):
            return
        if isinstance(node, SCOPES):
            self._names.enter(node)
            self.generic_visit(node)
            self._names.leave()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in self._constants:
            if self._names.is_of_module(node.id):
                text = ast.unparse(self._constants[node.id])
                self.changes[node] = text if text.isdigit() or text[0] in "([{" else f"({text})"
        else:
            self.generic_visit(node)
