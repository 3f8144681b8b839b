"""Whether an annotation is a type, as far as the source shows it. PyTorch executes a string that it is."""

from __future__ import annotations

import ast

from drkernel.judge.trusted.source.source_names import home_of, is_class
from drkernel.tasks.scopes import Names, bound_by, own_nodes

_MAKERS = frozenset({"typing", "typing_extensions", "collections", "enum"})
"""Modules whose functions make types."""
_NO_STRING = (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Starred)
"""Expressions that are no types, and no strings but those that are written out."""


class Types:
    """The names of a source that stand for types."""

    def __init__(self, names: Names, tree: ast.Module):
        self._names = names
        self._bound: dict[str, list[ast.AST]] = {}
        """What binds a name of the module."""
        by_assignment = set()
        for node in sorted(own_nodes(tree), key=lambda node: not isinstance(node, (ast.Assign, ast.AnnAssign))):
            targets = getattr(node, "targets", [node.target] if isinstance(node, ast.AnnAssign) else [])
            for target in targets:
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(target, ast.Name):
                    self._bound.setdefault(target.id, []).append(node)
                    by_assignment.add(target)
            for name in bound_by(node) if node not in by_assignment else ():
                self._bound.setdefault(name, []).append(node)
        self._globals = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}

    def are(self, *nodes: ast.AST | None, depth: int = 4) -> bool:
        """Whether expressions cannot be strings, but for those that are written out."""
        return all(self._is(node, depth) for node in nodes)

    def _is(self, node: ast.AST | None, depth: int) -> bool:
        if node is None or isinstance(node, _NO_STRING) or self._names.origins(node):
            return True
        if isinstance(node, ast.Subscript):
            return self._takes_types(node.value, depth)
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, ast.BitOr)
        if isinstance(node, ast.BoolOp):
            return self.are(*node.values, depth=depth)
        if isinstance(node, ast.Attribute):
            inner = self._names.class_of(node.value.id) if isinstance(node.value, ast.Name) else None
            found = [part for part in (inner.body if inner else []) if node.attr in bound_by(part)]
            return bool(found) and all(isinstance(part, ast.ClassDef) for part in found)
        return isinstance(node, ast.Name) and self._is_name(node.id, depth)

    def _takes_types(self, node: ast.AST, depth: int) -> bool:
        """Whether what is subscripted is generic: `os.environ["X"]` is a string, and so may be a member of an enum."""
        origins = self._names.origins(node)
        if any(not is_class(origin) and home_of(origin)[0] not in _MAKERS for origin in origins):
            return False
        inner = self._names.class_of(node.id) if isinstance(node, ast.Name) else None
        return self._is(node, depth) and (inner is None or any(isinstance(base, ast.Subscript) for base in inner.bases))

    def _is_name(self, name: str, depth: int) -> bool:
        if self._names.is_unbound(name) or self._names.class_of(name):
            return True
        if not depth or name in self._globals or not self._names.is_of_module(name):
            return False
        return all(self._binds_a_type(node, depth - 1) for node in self._bound.get(name, []))

    def _binds_a_type(self, node: ast.AST, depth: int) -> bool:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            value = node.value
            if isinstance(value, ast.Call):
                return any(home_of(origin)[0] in _MAKERS for origin in self._names.origins(value.func))
            return not isinstance(value, (ast.Constant, ast.List, ast.Dict)) and self.are(value, depth=depth)
        return isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.Import, ast.ImportFrom))
