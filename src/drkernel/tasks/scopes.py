"""What the names of a source stand for, by Python's own scoping, found without executing anything.

A module is known under the names that import statements give it, and under plain aliases (`lib = tl.extra.libdevice`,
`lib = tl.math if old else tl.extra.libdevice`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LONGEST_CHAIN, _MOST_ORIGINS = 20, 2000
"""Of aliases: how many may follow from each other against the order of their statements, and what all stand for."""
SCOPES = (*_FUNCTIONS, ast.ClassDef, *COMPREHENSIONS)


@dataclass
class Scope:
    """One scope of a source: the names that it binds, and what some of them stand for."""

    kind: type
    """Of its node: ast.Module, ast.ClassDef, a function or a comprehension."""
    bound: set[str] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)
    """Names that `global` and `nonlocal` hand to an outer scope."""
    globals: set[str] = field(default_factory=set)
    """Those of `global`."""
    origins: dict[str, set[str]] = field(default_factory=dict)
    """Dotted origins of imported names and of their aliases: `tl` is `triton.language`."""
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    settled: bool = True
    """Whether all of its aliases are known for what they stand for."""

    @property
    def falls_through(self) -> bool:
        """Whether a name that this scope binds may all the same be an outer one, where it is not bound yet."""
        return self.kind in (ast.ClassDef, ast.Module)


class Names:
    """The scopes around the place that a visitor is at."""

    def __init__(self, tree: ast.Module):
        self._scopes: list[Scope] = []
        self.enter(tree)

    @property
    def here(self) -> Scope:
        return self._scopes[-1]

    def enter(self, node: ast.AST) -> None:
        self._scopes.append(Scope(type(node)))
        self._fill(self._scopes[-1], node)

    def leave(self) -> None:
        self._scopes.pop()

    def may_be_builtin(self, name: str) -> bool:
        """Whether no function or comprehension around here binds a name."""
        return all(scope.falls_through for scope in self._binding(name))

    def is_unbound(self, name: str) -> bool:
        """Whether nothing around here binds a name."""
        return not self._binding(name)

    def is_of_module(self, name: str) -> bool:
        """Whether a name is the module's, and nothing between it and here binds it."""
        return self._binding(name) == self._scopes[:1]

    def class_of(self, name: str) -> ast.ClassDef | None:
        """The class statement behind a name, where there is one."""
        return next((scope.classes[name] for scope in self._binding(name) if name in scope.classes), None)

    def origins(self, node: ast.AST) -> set[str]:
        """The dotted origins that a name or an attribute chain may have; none if it does not start at an import."""
        head, parts = chain(node)
        if not isinstance(head, ast.Name):
            return set()
        found = [scope.origins.get(head.id, set()) for scope in self._binding(head.id)]
        return {".".join([origin, *parts]) for origin in set().union(*found)}

    def is_alias(self, node: ast.Assign) -> bool:
        """Whether a statement only gives an imported name or an attribute chain, or one of two by a condition, another
        name, which is followed."""
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Name) or self.here.kind is ast.ClassDef:
            return False
        return self.here.settled and target.id not in self.here.elsewhere and bool(self._aliased(node.value))

    def _aliased(self, value: ast.expr) -> set[str]:
        """The origins of an expression; none where one of its alternatives is no import and not None."""
        found = [self.origins(part) for part in alternatives(value) if not is_none(part)]
        return set().union(*found) if all(found) else set()

    def _binding(self, name: str) -> list[Scope]:
        """The scopes that a name may belong to, innermost first. A class body is seen from nowhere else."""
        found = []
        outer = [self._scopes[0]] if any(name in scope.globals for scope in self._scopes) else []
        for scope in outer or reversed(self._scopes):
            if name in scope.bound and (scope is self.here or scope.kind is not ast.ClassDef):
                found.append(scope)
                if not scope.falls_through:
                    break
        return found

    def _fill(self, scope: Scope, node: ast.AST) -> None:
        statements = list(own_nodes(node))
        scope.globals = {name for s in statements if isinstance(s, ast.Global) for name in s.names}
        scope.elsewhere = scope.globals | {n for s in statements if isinstance(s, ast.Nonlocal) for n in s.names}
        scope.bound = {name for s in statements for name in bound_by(s)} - scope.elsewhere
        for statement in statements:
            if isinstance(statement, ast.ClassDef):
                scope.classes[statement.name] = statement
            for name, origin in _imported(statement):
                scope.origins.setdefault(name, set()).add(origin)
        self._follow(scope, [statement for statement in statements if isinstance(statement, ast.Assign)])

    def _follow(self, scope: Scope, statements: list[ast.Assign]) -> None:
        """Notes what aliases stand for, and aliases of aliases. Where that has no end (`a = a.b`), none is followed."""
        total = 0
        for _ in range(_LONGEST_CHAIN):
            before = total
            for statement in filter(self.is_alias, statements):
                found = scope.origins.setdefault(statement.targets[0].id, set())  # type: ignore[attr-defined]
                new = self._aliased(statement.value) - found
                found |= new
                total += len(new)
                if total > _MOST_ORIGINS:
                    scope.settled = False
                    return
            if total == before:
                return
        scope.settled = False


def chain(node: ast.AST) -> tuple[ast.AST, list[str]]:
    """The start of an attribute chain and the attributes behind it: `a().b.c` gives `a()` and [b, c]."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return node, parts[::-1]


def alternatives(node: ast.expr) -> list[ast.expr]:
    """The expressions of which a conditional one takes one: `a if x else b` gives a and b, and all else itself."""
    return [*alternatives(node.body), *alternatives(node.orelse)] if isinstance(node, ast.IfExp) else [node]


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope without those of inner scopes, whose own statement or expression is the last that counts.

    A walrus in a comprehension binds a name outside of it.
    """
    todo = list(ast.iter_child_nodes(scope))
    if isinstance(scope, COMPREHENSIONS):
        yield from (node for loop in scope.generators for node in ast.walk(loop.target))
        return
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, COMPREHENSIONS):
            yield from (inner.target for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr))
        if isinstance(node, SCOPES):
            continue
        todo += ast.iter_child_nodes(node)


def bound_by(node: ast.AST) -> Iterator[str]:
    """The names that a node itself binds."""
    if isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
        yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (name for name, _ in _imported(node))
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that an import statement binds, each with its origin."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            root = alias.name.partition(".")[0]
            yield alias.asname or root, alias.name if alias.asname else root
    elif isinstance(node, ast.ImportFrom):
        yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
