"""The canonical form of a task, and of submissions to it."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from drkernel.policy.canonical.calls import written
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
from drkernel.policy.canonical.trace import Trace, Untold, trace
from drkernel.policy.canonical.values import assigned, copied, is_literal, resolved, returned

IMPORTS = """\
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
"""


@dataclass(frozen=True)
class Canonical:
    """A task in canonical form, and how its names are written there."""

    text: str
    """What a policy reads."""
    frame: Frame | None = None
    """What every submission has; None where the source is no Python."""
    names: Names = field(default_factory=Names)
    """Of attributes and classes."""
    methods: Mapping[tuple[str, str], Mapping[str, ast.expr]] = field(default_factory=dict)
    """By class and method: how arguments and variables are written. A literal: an argument that nothing fills."""

    def answer(self, submission: str, entry_point: str = "Model") -> str:
        """What a policy writes for a submission to the source: its kernels, functions and methods. As it is where it is
        no Python."""
        try:
            tree = short_imports(ast.parse(submission))
        except (SyntaxError, RecursionError, ValueError):
            return submission
        if self.frame is None:
            return submission
        before: list[ast.stmt] = []
        methods: list[ast.stmt] = []
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name in (entry_point, f"{entry_point}New"):
                methods += self._methods(node, entry_point)
            elif not isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef):
                before.append(node)
        return "\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in [*before, *methods]) + "\n"

    def submission(self, answer: str, name: str = "ModelNew") -> str | None:
        """The submission that an answer stands for; None where it has no `forward`."""
        if self.frame is None:
            return answer if answer.strip() else None
        kernels, start, methods = answer.partition("def forward(self")
        if not start:
            return None
        own = textwrap.indent(self.frame.constructor + start + methods, "    ")
        return f"{IMPORTS}{self.frame.before}{kernels}class {name}(nn.Module):\n{own}"

    def _methods(self, node: ast.ClassDef, entry_point: str) -> Iterator[ast.stmt]:
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and part.args.args and part.name != "__init__":
                without_annotations(part)
                known = self.methods.get((entry_point, part.name), {})
                yield _with_arguments(renamed(part, _with_locals(self.names, known)), known)


@dataclass(frozen=True)
class Frame:
    """The parts of a submission that follow from the task, in canonical names."""

    before: str
    """Functions and classes that the constructor needs."""
    constructor: str
    """`__init__`, without indentation; empty where there is none."""


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
        return _Form(tree, entry_point, source).canonical()
    except (SyntaxError, RecursionError, ValueError):
        return Canonical(source)


class _Form:
    """A task's file while its canonical form is written."""

    def __init__(self, tree: ast.Module, entry_point: str, source: str):
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
        try:
            self.trace: Trace | None = trace(source, entry_point, lambda path: f"self.{self._path(path)}")
        except Untold:
            self.trace = None

    def _path(self, path: str) -> str:
        """A path of parameters in canonical names: `m0[1].weight` of `net.1.weight`."""
        first, *rest = path.split(".")
        found = self.names.attributes.get(first, first)
        for part in rest:
            found += f"[{part}]" if part.isdigit() else f".{self.names.inner.get(part, part)}"
        return found

    def canonical(self) -> Canonical:
        helpers = [node for node in self.classes.values() if node is not self.entry]
        classes = "".join(map(self._constructor_of, helpers))
        constructor = self._constructor(self.entry)
        used = [f for f in self.functions.values() if re.search(rf"\b{f.name}\(", classes + constructor)]
        frame = Frame("".join(map(self._helper, used)) + classes, constructor)
        return Canonical(self._told(self.trace) if self.trace else self._written_out(), frame, self.names, self.methods)

    def _told(self, trace: Trace) -> str:
        """A `forward` as PyTorch's calls."""
        shapes = [f"in{place}: {shape}" for place, shape in enumerate(trace.inputs)]
        numbers = [f"{self._path(name)}: {written(value)}" for name, value in trace.numbers.items()]
        arguments = ", ".join(["self", *(f"in{place}" for place in range(len(shapes)))])
        head = f"def forward({arguments}):  # {'; '.join([*shapes, *numbers])}"
        return "\n".join([head, *(f"    {line}" for line in trace.lines)]) + "\n"

    def _written_out(self) -> str:
        """The source's own text in canonical names, where it cannot be run without data."""
        helpers = [node for node in self.classes.values() if node is not self.entry]
        entry = self._class(self.entry)
        functions = [f for f in self.functions.values() if f.name not in ("get_inputs", "get_init_inputs")]
        unread = (("get_init_inputs", self.initial), ("get_inputs", self.inputs))
        functions += [self.functions[name] for name, found in unread if found is None and name in self.functions]
        return "".join([*map(self._helper, functions), *map(self._class, helpers), entry])

    def _helper(self, function: ast.FunctionDef) -> str:
        without_annotations(function)
        return text(_without_text(self._in_place(function)), self.names) + "\n"

    def _in_place(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """With constants of the file in place."""
        own = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
        shadowed = own | {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        return resolved(node, {name: value for name, value in self.known.items() if name not in shadowed})

    def _constructor_of(self, node: ast.ClassDef) -> str:
        """A class with its constructor alone."""
        body = textwrap.indent(self._constructor(node) or "pass\n", "    ")
        return f"class {self.names.classes[node.name]}({self._bases(node)}):\n{body}"

    def _bases(self, node: ast.ClassDef) -> str:
        return ", ".join(text(base, self.names) for base in node.bases)

    def _constructor(self, node: ast.ClassDef) -> str:
        """All methods of a class that its constructor may need, in canonical names; empty where there is none."""
        methods = [m for m in _methods(node) if m.name != "forward"]
        if not any(method.name == "__init__" for method in methods):
            return ""
        start = next(method for method in methods if method.name == "__init__")
        called = {n.attr for n in ast.walk(start) if isinstance(n, ast.Attribute)}
        kept = [method for method in methods if method is start or method.name in called]
        return "".join(self._method(node, method) for method in kept)

    def _method(self, node: ast.ClassDef, method: ast.FunctionDef) -> str:
        known = self.methods[node.name, method.name]
        shown = _with_arguments(renamed(self._in_place(method), _with_locals(self.names, known)), known)
        without_annotations(shown)
        shown.body = [_SUPER if _is_super(statement) else statement for statement in shown.body]
        return ast.unparse(ast.fix_missing_locations(_without_text(shown))) + "\n"

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


_SUPER = ast.parse("super().__init__()").body[0]


def _is_super(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and ast.unparse(statement).startswith("super(")
