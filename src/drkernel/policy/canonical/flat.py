"""`forward` as a list of lines, one operator each, each result under a name of its own.

    x = self.act(self.conv(x)) * 2      ->      t0 = self.m0(in0)  # m0: nn.Conv2d(3, 16, 3)
    return x.mean(dim=1)                        t1 = self.m1(t0)  # m1: nn.ReLU()
                                                t2 = t1 * 2
                                                t3 = t2.mean(dim=1)
                                                return t3

What a module of the file or an `nn.Sequential` does stands in its place. Loops and branches stay, with their bodies
flattened; names that they assign are `v0`, `v1`, ...
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from drkernel.policy.canonical.names import root
from drkernel.policy.canonical.values import Unknown, copied, evaluated, is_literal, resolved, written_names

Node = TypeVar("Node", bound=ast.AST)

SIZES = {"len", "int", "float", "range", "max", "min", "math.sqrt"}
"""Calls whose results are numbers where their arguments are."""
SHAPES = {"shape", "ndim", "dtype", "device"}
SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Assert, ast.Pass)
MOST_PARTS = 12
"""The most modules of one list that are written out."""
DEEPEST = 4
"""How far modules within modules are written out."""


@dataclass(frozen=True)
class Module:
    """A module whose class is in the file: what it consists of, and what it computes."""

    name: str
    """Of its class."""
    attributes: Mapping[str, ast.expr]
    """By attribute: its constructor or value, with what is known in place."""
    forward: ast.FunctionDef | None
    classes: Callable[[ast.expr], Module | None]
    """The module that an expression constructs, where its class is in the file."""

    @property
    def is_straight(self) -> bool:
        """Whether what it computes can stand in another method, if all its branches are decided: no loop, one return at
        the end, plain arguments."""
        if self.forward is None or not self.forward.body:
            return False
        arguments, (*before, last) = self.forward.args, self.forward.body
        plain = not (arguments.vararg or arguments.kwarg or arguments.kwonlyargs)
        inside = [part for s in before for part in ([*s.body, *s.orelse] if isinstance(s, ast.If) else [s])]
        return (
            plain
            and all(isinstance(s, SIMPLE) for s in inside)
            and isinstance(last, ast.Return)
            and last.value is not None
        )

    def lookup(self, path: ast.expr) -> ast.expr | None:
        """What stands for `self.conv` or `self.blocks[0].conv`, if it is known."""
        match path:
            case ast.Attribute(value=ast.Name(id="self"), attr=attr):
                return self.attributes.get(attr)
            case ast.Attribute(value=value, attr=attr):
                made = self.lookup(value)
                inner = self.classes(made) if made is not None else None
                return inner.attributes.get(attr) if inner else None
            case ast.Subscript(value=value, slice=ast.Constant(value=int() as place)):
                made = self.lookup(value)
                parts = _parts(made) if made is not None else []
                return parts[place] if -len(parts) <= place < len(parts) else None
        return None


@dataclass
class Scope:
    """One method while it is written out."""

    path: ast.expr
    """What `self` is: a name, or an attribute where the method's module is part of another."""
    values: dict[str, ast.expr]
    """By local name: what stands for it."""
    stable: Mapping[str, str] = field(default_factory=dict)
    """Names that loops and branches assign, as they are written here."""
    depth: int = 0


class Flattener:
    """Writes a `forward` as lines."""

    def __init__(self, module: Module, rename: Callable[[ast.AST], str], written_out: set[str]):
        """rename: the text of a node in canonical names. written_out: gets the classes whose `forward` stands here."""
        self.module, self.rename, self.written_out = module, rename, written_out
        self.lines: list[tuple[int, str]] = []
        self._temporaries = self._indent = 0
        self._sizes: set[str] = set()

    def method(self, function: ast.FunctionDef, arguments: Sequence[str]) -> list[str]:
        """The lines of the body of a method with these arguments."""
        names = [argument.arg for argument in function.args.args[1:]]
        values: dict[str, ast.expr] = {n: ast.Name(a) for n, a in zip(names, arguments, strict=True)}
        outer = Scope(ast.Name("self"), {})
        unstable = dict.fromkeys(n for s in function.body if self._stays(s, outer) for n in written_names([s]))
        stable = {name: f"v{number}" for number, name in enumerate(unstable)}
        for name, written in stable.items():
            if name in values:
                self._line(ast.Assign([ast.Name(written)], values[name]))
            values[name] = ast.Name(written)
        self._statements(function.body, Scope(ast.Name("self"), values, stable))
        return [f"{'    ' * depth}{text}" for depth, text in self.lines]

    def _statements(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self._statement(statement, scope)

    def _statement(self, statement: ast.stmt, scope: Scope) -> None:
        match statement:
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, value, scope)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                self._assign(ast.Name(name, ast.Store()), ast.BinOp(ast.Name(name, ast.Load()), op, value), scope)
            case ast.Return(value=value):
                self._line(ast.Return(value and self._atom(value, scope)))
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Assert():
                pass
            case ast.Expr(value=value):
                self._line(ast.Expr(self._shallow(value, scope)))
            case ast.If(test=test, body=body, orelse=orelse):
                self._branch(test, body, orelse, scope)
            case ast.For(target=ast.Name(id=name), iter=source, body=body) if parts := self._repeated(statement):
                for place in range(parts):
                    scope.values[name] = ast.Subscript(source, ast.Constant(place))
                    self._statements(body, scope)
            case ast.For(target=target, iter=source, body=body):
                source = self._shallow(source, scope)
                self._block(ast.For(self._target(target, scope, self._is_size(source)), source, [], []), body, scope)
            case ast.While(test=test, body=body):
                self._block(ast.While(_named(test, scope), [], []), body, scope)
            case ast.With(items=items, body=body):
                self._block(ast.With([_named(item, scope) for item in items], []), body, scope)
            case _:
                self._line(_named(statement, scope))

    def _stays(self, statement: ast.stmt, scope: Scope) -> bool:
        """Whether it is a loop or a branch that is not written out."""
        if isinstance(statement, ast.If) and self._holds(statement.test, scope) is not None:
            return not all(isinstance(part, SIMPLE) for part in [*statement.body, *statement.orelse])
        return _is_compound(statement) and not self._repeated(statement)

    def _repeated(self, statement: ast.stmt) -> int:
        """How often the body of a loop over modules is written out; 0: it stays a loop."""
        if not isinstance(statement, ast.For) or not isinstance(statement.target, ast.Name) or statement.orelse:
            return 0
        plain = all(isinstance(s, ast.Assign | ast.AugAssign | ast.Expr) for s in statement.body)
        made = self.module.lookup(statement.iter) if plain else None
        return len(_parts(made)) if made is not None else 0

    def _assign(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Name) and target.id not in scope.stable:
            grows = isinstance(value, ast.List | ast.Dict)
            scope.values[target.id] = self._kept(self._shallow(value, scope)) if grows else self._atom(value, scope)
        else:
            found = self._shallow(value, scope)
            self._line(ast.Assign([self._target(target, scope, self._is_size(found))], found))

    def _target(self, target: ast.expr, scope: Scope, is_size: bool) -> ast.expr:
        """What stands to the left of an assignment, or after `for`."""
        match target:
            case ast.Tuple(elts=elements):
                return ast.Tuple([self._target(element, scope, is_size) for element in elements])
            case ast.Name(id=name) if name in scope.stable:
                return ast.Name(scope.stable[name])
            case ast.Name(id=name):
                scope.values[name] = made = self._fresh()
                self._sizes.update([made.id] if is_size else [])
                return made
        return _named(target, scope)

    def _branch(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt], scope: Scope) -> None:
        found, holds = _named(test, scope), self._holds(test, scope)
        if holds is None:
            self._block(ast.If(found, [], []), body, scope)
            if orelse:
                self._block(ast.If(ast.UnaryOp(ast.Not(), found), [], []), orelse, scope)
        else:
            self._statements(body if holds else orelse, scope)

    def _holds(self, test: ast.expr, scope: Scope) -> bool | None:
        """Whether a condition holds, if that is known."""
        found = _named(test, scope)
        match found:
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=None)]):
                if isinstance(self.module.lookup(left), ast.Call):
                    return isinstance(op, ast.IsNot)
            case ast.Attribute() if isinstance(self.module.lookup(found), ast.Call):
                return True
        try:
            return bool(evaluated(_Values(self.module).visit(found)))
        except Unknown:
            return None

    def _block(self, head: ast.stmt, body: Sequence[ast.stmt], scope: Scope) -> None:
        self._line(head)
        self._indent += 1
        self._statements(body, scope)
        self._indent -= 1

    def _line(self, statement: ast.AST) -> None:
        text, told = self.rename(statement), list(dict.fromkeys(self._told(statement)))
        self.lines.append((self._indent, f"{text}  # {'; '.join(told)}" if told else text))

    def _told(self, node: ast.AST) -> Iterator[str]:
        """What is known of the modules and values in a line, for its reader."""
        is_path = isinstance(node, ast.Attribute | ast.Subscript) and root(node) == "self"
        if isinstance(node, ast.expr) and is_path and (made := self.module.lookup(node)) is not None:
            yield f"{self.rename(node).removeprefix('self.')}: {self.rename(made)}"
            return
        for child in ast.iter_child_nodes(node):
            yield from self._told(child)

    def _fresh(self) -> ast.Name:
        self._temporaries += 1
        return ast.Name(f"t{self._temporaries - 1}")

    def _atom(self, node: ast.expr, scope: Scope) -> ast.expr:
        """A name, literal, attribute or size that stands for an expression, after the lines that compute it."""
        found = self._shallow(node, scope)
        return found if self._is_atom(found) else self._kept(found)

    def _kept(self, node: ast.expr) -> ast.Name:
        """The name that the result of an expression gets."""
        name = self._fresh()
        self._line(ast.Assign([name], node))
        return name

    def _shallow(self, node: ast.expr, scope: Scope) -> ast.expr:
        """An expression of one operator on atoms, after the lines that compute those."""
        within = lambda child: self._atom(child, scope)
        match node:
            case ast.Name(id="self"):
                return scope.path
            case ast.Name(id=name):
                return scope.values.get(name, node)
            case ast.Attribute(value=value, attr=attr):
                return ast.Attribute(within(value), attr)
            case ast.BinOp(left=left, op=op, right=right):
                return ast.BinOp(within(left), op, within(right))
            case ast.UnaryOp(op=op, operand=operand):
                return ast.UnaryOp(op, within(operand))
            case ast.Compare(left=left, ops=ops, comparators=right):
                return ast.Compare(within(left), ops, [within(each) for each in right])
            case ast.Subscript(value=value, slice=index):
                return ast.Subscript(within(value), self._index(index, scope))
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return type(node)([within(element) for element in elements], ast.Load())
            case ast.Starred(value=value):
                return ast.Starred(within(value))
            case ast.Call(func=function, args=arguments, keywords=keywords):
                function = self._shallow(function, scope)
                arguments = [within(each) for each in arguments]
                named = [ast.keyword(each.arg, within(each.value)) for each in keywords]
                written = None if named else self._written_out(function, arguments, scope.depth)
                return written or ast.Call(function, arguments, named)
        return _named(node, scope)

    def _index(self, node: ast.expr, scope: Scope) -> ast.expr:
        match node:
            case ast.Slice(lower=lower, upper=upper, step=step):
                return ast.Slice(*(each and self._atom(each, scope) for each in (lower, upper, step)))
            case ast.Tuple(elts=elements):
                return ast.Tuple([self._index(element, scope) for element in elements], ast.Load())
        return self._atom(node, scope)

    def _written_out(self, function: ast.expr, arguments: list[ast.expr], depth: int) -> ast.expr | None:
        """What a module computes that consists of others; None where it does not, or where the file does not say."""
        made = self.module.lookup(function)
        if made is None or depth >= DEEPEST:
            return None
        if _is_sequential(made) and len(arguments) == 1:
            value = arguments[0]
            for place in range(len(_parts(made))):
                part = ast.Subscript(function, ast.Constant(place))
                value = self._written_out(part, [value], depth + 1) or self._kept(ast.Call(part, [value], []))
            return value
        inner = self.module.classes(made)
        if inner is None or inner.forward is None or not inner.is_straight:
            return None
        names = [argument.arg for argument in inner.forward.args.args[1:]]
        if len(names) != len(arguments):
            return None
        inside = Scope(function, dict(zip(names, arguments, strict=True)), depth=depth + 1)
        branches = [statement for statement in inner.forward.body if isinstance(statement, ast.If)]
        if any(self._holds(branch.test, inside) is None for branch in branches):
            return None
        self.written_out.add(inner.name)
        *body, last = inner.forward.body
        self._statements(body, inside)
        assert isinstance(last, ast.Return) and last.value is not None
        return self._atom(last.value, inside)

    def _is_atom(self, node: ast.expr) -> bool:
        match node:
            case ast.Name() | ast.Constant() | ast.Lambda() | ast.JoinedStr():
                return True
            case ast.Attribute(value=value) | ast.Starred(value=value):
                return self._is_atom(value)
            case ast.Subscript(value=value, slice=ast.Constant()) if root(value) == "self":
                return self._is_atom(value)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return all(map(self._is_atom, elements))
        return is_literal(node) or self._is_size(node)

    def _is_size(self, node: ast.expr) -> bool:
        """Whether an expression consists of shapes and numbers alone."""
        match node:
            case ast.Constant(value=value):
                return not isinstance(value, str)
            case ast.Name(id=name):
                return name in self._sizes
            case ast.Attribute(attr=attr):
                made = self.module.lookup(node)
                return attr in SHAPES or (made is not None and is_literal(made))
            case ast.Subscript(value=value, slice=ast.Slice()):
                return self._is_size(value)
            case ast.Subscript(value=left, slice=right) | ast.BinOp(left=left, right=right):
                return self._is_size(left) and self._is_size(right)
            case ast.UnaryOp(operand=operand) | ast.Starred(value=operand):
                return self._is_size(operand)
            case ast.Tuple(elts=elements):
                return all(map(self._is_size, elements))
            case ast.Call(func=ast.Attribute(attr="size" | "dim" | "numel"), args=arguments):
                return all(map(self._is_size, arguments))
            case ast.Call(func=function, args=arguments) if ast.unparse(function) in SIZES:
                return all(map(self._is_size, arguments))
        return False


class _Names(ast.NodeTransformer):
    """Puts what stands for local names in their places."""

    def __init__(self, scope: Scope):
        self.scope = scope

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.scope.path if node.id == "self" else self.scope.values.get(node.id)
        return node if found is None else copied(found)


def _named(node: Node, scope: Scope) -> Node:
    """A copy with what stands for local names in place, not flattened."""
    changed: Node = _Names(scope).visit(copied(node))
    return changed


class _Values(ast.NodeTransformer):
    """Puts literals in the places of attributes."""

    def __init__(self, module: Module):
        self.module = module

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        made = self.module.lookup(node)
        return copied(made) if made is not None else node


def _is_sequential(made: ast.expr) -> bool:
    return isinstance(made, ast.Call) and ast.unparse(made.func) == "nn.Sequential" and bool(_parts(made))


def _parts(made: ast.expr) -> list[ast.expr]:
    """The modules of an `nn.Sequential` or `nn.ModuleList` whose number is known; none where they are many."""
    match made:
        case ast.Call(func=ast.Attribute(attr="Sequential"), args=arguments, keywords=[]):
            parts = [part for argument in arguments for part in _several(argument)]
        case ast.Call(func=ast.Attribute(attr="ModuleList"), args=[argument]):
            parts = _several(ast.Starred(argument))
        case _:
            return []
    return [] if len(parts) > MOST_PARTS or any(isinstance(part, ast.Starred) for part in parts) else parts


def _several(argument: ast.expr) -> list[ast.expr]:
    """What an argument stands for: itself, or the elements of a list behind a star, where they are known."""
    match argument:
        case ast.Starred(value=ast.List(elts=parts)):
            return parts
        case ast.Starred(value=ast.ListComp(elt=each, generators=[made])):
            turns = made.iter.args if isinstance(made.iter, ast.Call) and ast.unparse(made.iter.func) == "range" else []
            if len(turns) == 1 and is_literal(turns[0]) and not made.ifs and isinstance(made.target, ast.Name):
                return [resolved(each, {made.target.id: ast.Constant(k)}) for k in range(min(evaluated(turns[0]), 99))]
    return [argument]


def _is_compound(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try | ast.Match | ast.FunctionDef)
