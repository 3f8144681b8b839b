"""Names of a source in canonical form, and code written with them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from drkernel.policy.canonical.values import copied, written_names

Node = TypeVar("Node", bound=ast.AST)

LIBRARIES = {"torch", "nn", "F", "math", "triton", "tl", "np", "numpy"}

SHORT = {("torch", "nn"): "nn", ("nn", "functional"): "F"}
"""Modules that have one name, however they were imported."""


@dataclass(frozen=True)
class Names:
    """How names are written, by what they are."""

    attributes: Mapping[str, str] = field(default_factory=dict)
    """Of `self`."""
    inner: Mapping[str, str] = field(default_factory=dict)
    """Of modules whose class is in the file, wherever they are."""
    classes: Mapping[str, str] = field(default_factory=dict)
    locals: Mapping[str, ast.expr] = field(default_factory=dict)
    """Arguments and variables of one method."""
    keywords: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By class of the file: of its constructor."""


def text(node: ast.AST, names: Names) -> str:
    """A node as source, with these names."""
    return ast.unparse(ast.fix_missing_locations(renamed(node, names)))


def renamed(node: Node, names: Names) -> Node:
    changed: Node = _Renaming(names).visit(copied(node))
    return changed


class _Renaming(ast.NodeTransformer):
    def __init__(self, names: Names):
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.names.locals:
            return copied(self.names.locals[node.id])
        return ast.Name(self.names.classes.get(node.id, node.id))

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        value: ast.expr = self.visit(node.value)
        own = isinstance(node.value, ast.Name) and node.value.id == "self"
        known = self.names.attributes if own else {} if root(node) in LIBRARIES else self.names.inner
        return ast.Attribute(value, known.get(node.attr, node.attr))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        words = self.names.keywords.get(node.func.id, {}) if isinstance(node.func, ast.Name) else {}
        keywords = [ast.keyword(words.get(k.arg or "", k.arg), self.visit(k.value)) for k in node.keywords]
        return ast.Call(self.visit(node.func), [self.visit(each) for each in node.args], keywords)


def root(node: ast.expr) -> str:
    """The name of which attributes and elements are taken."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def numbered(entry: ast.ClassDef, others: Sequence[ast.ClassDef]) -> tuple[dict[str, str], dict[str, str]]:
    """The names of the attributes of `self` in all classes, and of those that others than `entry` have.

    The others' attributes are also asked for from outside, where nothing tells `part.relu` from a tensor's `relu`. So
    they keep names that tensors and modules of PyTorch have.
    """
    inner = dict.fromkeys(name for node in others for name in _set_in(node))
    kept = {name for name in inner if hasattr(torch.Tensor, name) or name in OF_MODULES}
    every = dict.fromkeys(name for name in (*_set_in(entry), *inner) if name not in kept)
    names = {name: f"m{number}" for number, name in enumerate(every)}
    return names, {name: names[name] for name in inner if name not in kept}


OF_MODULES = frozenset(
    ["weight", "bias", "running_mean", "running_var", "eps", "stride", "padding", "kernel_size", "dilation", "groups"]
)


def _set_in(node: ast.ClassDef) -> Iterator[str]:
    """What `self.NAME = ...` sets in a class."""
    stored = (n for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    yield from (n.attr for n in stored if isinstance(n.value, ast.Name) and n.value.id == "self")


def parameters(method: ast.FunctionDef) -> list[ast.arg]:
    """The arguments of a method that a position can fill, without `self`."""
    return [*method.args.posonlyargs, *method.args.args][1:]


def defaults(method: ast.FunctionDef) -> dict[str, ast.expr]:
    """By argument: what it is where nothing fills it."""
    found, given = parameters(method), method.args.defaults
    by_position = zip(found[len(found) - len(given) :], given, strict=True)
    by_name = zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True)
    return {argument.arg: value for argument, value in (*by_position, *by_name) if value is not None}


def local_names(method: ast.FunctionDef) -> list[str]:
    """The variables of a method that are no arguments, each once."""
    arguments = {argument.arg for argument in (*parameters(method), *method.args.kwonlyargs)}
    return [name for name in dict.fromkeys(written_names(method.body)) if name not in arguments]


def short_imports(tree: ast.Module) -> ast.Module:
    """With PyTorch's modules under their short names, and without imports of PyTorch."""
    known: dict[str, str] = {}
    rest: list[ast.stmt] = []
    for statement in tree.body:
        found = dict(_imported(statement))
        known |= found
        rest += [statement] if not found else []
    body = ast.Module(rest, tree.type_ignores)
    changed = _Shortening(known).visit(body)
    assert isinstance(changed, ast.Module)
    return changed


def _imported(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """(name, what it is) of an import of PyTorch's modules and of what is in them."""
    match statement:
        case ast.Import(names=names) if all(name.name.split(".")[0] == "torch" for name in names):
            yield from ((name.asname or "torch", name.name if name.asname else "torch") for name in names)
        case ast.ImportFrom(module=str(module), names=names, level=0) if module.split(".")[0] == "torch":
            yield from ((name.asname or name.name, f"{module}.{name.name}") for name in names)


class _Shortening(ast.NodeTransformer):
    def __init__(self, known: Mapping[str, str]):
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load) or node.id not in self.known:
            return node
        parts = self.known[node.id].split(".")
        found: ast.expr = ast.Name(parts[0], ast.Load())
        for part in parts[1:]:
            found = _short(ast.Attribute(found, part, ast.Load()))
        return found

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return _short(ast.Attribute(self.visit(node.value), node.attr, node.ctx))


def _short(node: ast.Attribute) -> ast.expr:
    name = SHORT.get((node.value.id, node.attr)) if isinstance(node.value, ast.Name) else None
    return ast.Name(name, ast.Load()) if name else node


def without_annotations(method: ast.FunctionDef) -> None:
    """Takes the annotations of arguments and results away, in place."""
    method.returns = None
    for argument in ast.walk(method.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
