"""The canonical form of a task, and of submissions to it."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from drkernel.policy.canonical.flat import Flattener, Module
from drkernel.policy.canonical.inputs import described
from drkernel.policy.canonical.names import (
    Names,
    defaults,
    local_names,
    numbered,
    parameters,
    renamed,
    short_imports,
    text,
    without_annotations,
)
from drkernel.policy.canonical.values import assigned, copied, is_literal, resolved, returned

IMPORTS = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
"""


@dataclass(frozen=True)
class Canonical:
    """A task in canonical form, and how its names are written there."""

    text: str
    names: Names = field(default_factory=Names)
    """Of attributes and classes."""
    methods: Mapping[tuple[str, str], Mapping[str, ast.expr]] = field(default_factory=dict)
    """By class and method: how arguments and variables are written. A literal: an argument that nothing fills."""

    def written(self, submission: str, entry_point: str = "Model") -> str:
        """A submission for the source, as one for the canonical form; as it is where it is no Python."""
        try:
            tree = short_imports(ast.parse(submission))
        except (SyntaxError, RecursionError, ValueError):
            return submission
        for place, node in enumerate(tree.body):
            if isinstance(node, ast.ClassDef):
                tree.body[place] = self._class(node, entry_point)
        return IMPORTS + ast.unparse(ast.fix_missing_locations(tree)) + "\n"

    def _class(self, node: ast.ClassDef, entry_point: str) -> ast.ClassDef:
        own = entry_point if node.name == f"{entry_point}New" else node.name
        body: list[ast.stmt] = []
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and part.args.args:
                without_annotations(part)
                known = self.methods.get((own, part.name), {})
                if part.name == "__init__" and not parameters(part) and all(map(_is_super, _without_text(part).body)):
                    continue  # as that of nn.Module
                body.append(_with_arguments(renamed(part, _with_locals(self.names, known)), known))
            else:
                body.append(renamed(part, self.names))
        node.name, node.body = self.names.classes.get(node.name, node.name), body
        return node


def _with_locals(names: Names, known: Mapping[str, ast.expr]) -> Names:
    return dataclasses.replace(names, locals=known)


def _with_arguments(method: ast.FunctionDef, known: Mapping[str, ast.expr]) -> ast.FunctionDef:
    """With its arguments renamed, and without those that are literals."""
    given = defaults(method)
    kept = [a.arg for a in parameters(method) if isinstance(known.get(a.arg, ast.Name("")), ast.Name)]
    names = [known[name].id if isinstance(known.get(name), ast.Name) else name for name in kept]  # type: ignore[attr-defined]
    values = [given[name] for name in kept if name in given]
    method.args.args = [method.args.args[0], *(ast.arg(name) for name in names)]
    method.args.defaults, method.args.posonlyargs = values, []
    return method


@functools.lru_cache(maxsize=4096)
def canonical(source: str, entry_point: str = "Model") -> Canonical:
    """The canonical form of a task; the source itself where it is no Python or has no such class."""
    try:
        tree = short_imports(ast.parse(source))
        if not any(isinstance(node, ast.ClassDef) and node.name == entry_point for node in tree.body):
            return Canonical(source)
        return _Form(tree, entry_point).canonical()
    except (SyntaxError, RecursionError, ValueError):
        return Canonical(source)


class _Form:
    """A task's file while its canonical form is written."""

    def __init__(self, tree: ast.Module, entry_point: str):
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.entry = self.classes[entry_point]
        self.known = assigned(tree.body, {})
        self.initial, self.words = _filled(returned(self.functions.get("get_init_inputs"), self.known))
        self.inputs = returned(self.functions.get("get_inputs"), self.known)
        helpers = [name for name in self.classes if name != entry_point]
        self.methods: dict[tuple[str, str], dict[str, ast.expr]] = {}
        for name, node in self.classes.items():
            for method in _methods(node):
                filled = node is self.entry and method.name == "__init__" and self.initial is not None
                given = (len(self.initial or ()), {word.arg for word in self.words}) if filled else None
                self.methods[name, method.name] = _numbered(method, given)
        self.written_out: set[str] = set()
        """The classes whose `forward` stands in that of others."""
        keywords = {n: _words(self.methods.get((n, "__init__"), {})) for n in helpers}
        attributes, inner = numbered(self.entry, [self.classes[name] for name in helpers])
        self.names = Names(
            attributes,
            inner,
            {entry_point: "Model", f"{entry_point}New": "ModelNew"}
            | {name: f"Part{number}" for number, name in enumerate(helpers)},
            keywords=keywords,
        )

    def canonical(self) -> Canonical:
        helpers = [node for node in self.classes.values() if node is not self.entry]
        entry = self._class(self.entry)
        functions = [f for f in self.functions.values() if f.name not in ("get_inputs", "get_init_inputs")]
        unread = (("get_init_inputs", self.initial), ("get_inputs", self.inputs))
        functions += [self.functions[name] for name, found in unread if found is None and name in self.functions]
        parts = [*map(self._helper, functions), *map(self._class, helpers), entry]
        return Canonical("".join(parts), self.names, self.methods)

    def _helper(self, function: ast.FunctionDef) -> str:
        without_annotations(function)
        return text(_without_text(self._in_place(function)), self.names) + "\n"

    def _in_place(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """With constants of the file in place."""
        own = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
        shadowed = own | {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        return resolved(node, {name: value for name, value in self.known.items() if name not in shadowed})

    def _class(self, node: ast.ClassDef) -> str:
        lines = [f"class {self.names.classes[node.name]}:"]
        for method in _methods(node):
            known = self.methods[node.name, method.name]
            shown = _with_arguments(copied(method), known)
            arguments = [a.arg for a in parameters(shown)]
            without_annotations(shown)
            head = f"    def {method.name}({ast.unparse(shown.args)}):"
            body = _without_text(self._in_place(method)).body
            if method.name == "forward" and node is self.entry:
                lines += [head + self._told_inputs(arguments)]
                module = self._module(node, self.initial or [], self.words)
                flat = Flattener(module, lambda each: text(each, self.names), self.written_out)
                lines += [f"        {line}" for line in flat.method(method, arguments)]
            elif not (method.name == "forward" and node.name in self.written_out):
                names = _with_locals(self.names, known)
                kept = [statement for statement in body if not _is_super(statement)]
                if not kept and not arguments:
                    continue
                lines += [head, *(f"        {line}" for each in kept for line in text(each, names).splitlines())]
        return "\n".join(lines) + "\n"

    def _told_inputs(self, arguments: Sequence[str]) -> str:
        if not self.inputs:
            return ""
        return "  # " + "; ".join(f"{n}: {described(v)}" for n, v in zip(arguments, self.inputs, strict=False))

    def _module(self, node: ast.ClassDef, given: Sequence[ast.expr], words: Sequence[ast.keyword]) -> Module:
        """A module of a class of the file, made with these arguments."""
        methods = {method.name: method for method in _methods(node)}
        start = methods.get("__init__")
        attributes: dict[str, ast.expr] = {}
        if start:
            names = [argument.arg for argument in parameters(start)]
            known = {name: value for name, value in self.known.items() if name not in names}
            known |= {name: value for name, value in defaults(start).items() if is_literal(value)}
            known |= dict(zip(names, given, strict=False)) | {word.arg: word.value for word in words if word.arg}
            for statement in start.body:
                match statement:
                    case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=attr)], value=value):
                        attributes[attr] = resolved(value, known)
                    case ast.AnnAssign(
                        target=ast.Attribute(value=ast.Name(id="self"), attr=attr), value=ast.expr() as value
                    ):
                        attributes[attr] = resolved(value, known)
                    case _:
                        known = assigned([statement], known)
        return Module(node.name, attributes, methods.get("forward"), self._made)

    def _made(self, made: ast.expr) -> Module | None:
        match made:
            case ast.Call(func=ast.Name(id=name), args=given, keywords=words) if name in self.classes:
                return self._module(self.classes[name], given, words)
        return None


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [part for part in node.body if isinstance(part, ast.FunctionDef) and part.args.args]


def _numbered(method: ast.FunctionDef, filled: tuple[int, Set[str | None]] | None) -> dict[str, ast.expr]:
    """How the names of a method are written. `filled`: how many of its arguments a position fills, and which ones a
    name fills, if that is known. The latter keep their names; what nothing fills is its default."""
    letter, known = "c" if method.name == "__init__" else "in", defaults(method)
    names: dict[str, ast.expr] = {}
    for place, name in enumerate(argument.arg for argument in parameters(method)):
        names[name] = ast.Name(f"{letter}{place}")
        if filled and name in filled[1]:
            names[name] = ast.Name(name)
        elif filled and place >= filled[0] and name in known and is_literal(known[name]):
            names[name] = known[name]
    if method.name == "__init__":
        names |= {name: ast.Name(f"h{number}") for number, name in enumerate(local_names(method))}
    return names


def _filled(given: list[ast.expr] | None) -> tuple[list[ast.expr] | None, list[ast.keyword]]:
    """What fills the arguments of a constructor by position and by name: KernelBench allows `[[...], {...}]`, too."""
    match given:
        case [ast.List(elts=places), ast.Dict(keys=keys, values=values)]:
            words = [(k.value, v) for k, v in zip(keys, values, strict=True) if isinstance(k, ast.Constant)]
            return places, [ast.keyword(str(name), value) for name, value in words]
    return given, []


def _words(known: Mapping[str, ast.expr]) -> dict[str, str]:
    return {name: value.id for name, value in known.items() if isinstance(value, ast.Name)}


def _without_text(function: ast.FunctionDef) -> ast.FunctionDef:
    """Without docstrings."""
    function.body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return function


def _is_super(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and ast.unparse(statement).startswith("super(")
