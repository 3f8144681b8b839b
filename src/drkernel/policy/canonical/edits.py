"""Completions that say what they change: a name of the canonical form stands for the reference's lines that compute it.

    def forward(self, in0):                         def forward(self, in0):
        t0 = self.m0(in0)                               t2 = torch.empty_like(t0)
        t1 = F.relu(t0)           <-- the form          kernel[...](t0, in0, t2, ...)     <-- a completion
        t2 = t1 + in0                                   return t3
        t3 = self.m1(t2)
        return t3

`expanded` writes `t0 = self.m0(in0)` before the line that reads `t0`, and `t3 = self.m1(t2)` before the last one;
`shortened` takes both out. So a policy need not repeat a network in order to change two lines of it, and cannot copy
one wrongly.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from drkernel.policy.canonical.repeats import repeated, without_repeats
from drkernel.policy.canonical.told import Line, Told, names_in

_VALUE = re.compile(r"t\d+")
_SAME = ("contiguous",)
"""Methods whose result has the values of the tensor."""
_SIGNS = {"add": ast.Add(), "sub": ast.Sub(), "mul": ast.Mult(), "div": ast.Div(), "matmul": ast.MatMult()}


def lines_of(told: Sequence[str], general: Sequence[str]) -> list[Line]:
    """The lines of a canonical form; none where one of them is no Python, or changes a tensor in place, whose values
    then depend on the place at which they are read.

    Args:
        told: as a policy reads them.
        general: as they suit other sizes.
    """
    found = []
    for read, written in zip(told, general, strict=True):
        try:
            ast.parse(read)
            statement = ast.parse(written).body[0]
        except SyntaxError:  # an argument that has no literal
            return []
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
            return []
        makes = tuple(name for name in names_in(statement, ast.Store) if _VALUE.fullmatch(name))
        found.append(Line(makes, frozenset(names_in(statement, ast.Load)), written, read))
    return found


def expanded(methods: str, told: Told, functions: Collection[str] = ()) -> str:
    """`forward` with the reference's lines for every `t3` that is read before it is set, or the call that follows from
    another one (repeats.py); itself where it is no Python.

    Args:
        methods: source that begins with `def forward`.
        functions: the names of the completion's own functions.
    """
    try:
        forward = _forward(ast.parse(methods))
    except (SyntaxError, RecursionError, ValueError, StopIteration):
        return methods
    calls = repeated(forward.body, functions, told)
    lines = [calls.get(line.makes[0], line) if line.makes else line for line in told.lines]
    makers = {name: place for place, line in enumerate(lines) for name in line.makes}
    known = {argument.arg for argument in forward.args.args}
    written = methods.splitlines()
    before: dict[int, list[str]] = {}

    def needed(names: Collection[str]) -> list[str]:
        """The lines that compute these values, in the reference's order."""
        waiting, places = list(names), set[int]()
        while waiting:
            name = waiting.pop()
            if name not in known and name in makers and makers[name] not in places:
                places.add(makers[name])
                waiting += lines[makers[name]].reads
        known.update(name for place in places for name in lines[place].makes)
        return [lines[place].text for place in sorted(places)]

    for statement in forward.body:
        before[statement.lineno] = [*before.get(statement.lineno, []), *needed(names_in(statement, ast.Load))]
        known.update(names_in(statement, ast.Store))
    out = []
    for number, text in enumerate(written, 1):
        indent = " " * (len(text) - len(text.lstrip()))
        out += [indent + inserted for inserted in before.get(number, [])] + [text]
    return "\n".join(out) + "\n"


def shortened(forward: ast.FunctionDef, told: Told, functions: Collection[str] = ()) -> ast.FunctionDef:
    """`forward` without the lines that compute what a line of the reference computes; what they compute has the
    reference's name. What a kernel makes has it too, where the next line takes it as the reference's does. Calls that
    follow from others are left out, too.

    `expanded` gives lines that compute the same, where kernels change no tensor but those that `forward` made.

    Args:
        forward: a method in canonical names, of statements one after the other; others are left as they are.
        functions: the names of the submission's own functions.
    """
    if not all(isinstance(statement, ast.Assign | ast.Expr | ast.Return) for statement in forward.body):
        return forward
    if (same := _without_lines(forward, told, functions)) is not None:
        return same
    found = _Shortened(told.lines, [argument.arg for argument in forward.args.args])
    for statement in forward.body:
        found.add(statement)
    return ast.FunctionDef("forward", forward.args, found.statements(), forward.decorator_list)


def _without_lines(forward: ast.FunctionDef, told: Told, functions: Collection[str]) -> ast.FunctionDef | None:
    """`forward` in the reference's names, without the lines that are the reference's to the letter and without calls
    that follow from others; None where it has other names, or where `expanded` would not write them where they were."""
    theirs = {ast.unparse(ast.parse(line.text)) for line in told.lines if line.makes}
    changed = [statement for statement in forward.body if ast.unparse(statement) not in theirs]
    following = repeated(changed, functions, told).keys()
    own = [one for one in forward.body if one in changed or not following.isdisjoint(names_in(one, ast.Store))]
    made = {"_", *(name for line in told.lines for name in line.makes)}
    if not own or not made.issuperset(names_in(forward, ast.Store)):
        return None
    for statements in (without_repeats(own, functions, told), own):
        short = ast.FunctionDef(forward.name, forward.args, statements, forward.decorator_list)
        text = ast.unparse(ast.fix_missing_locations(short))
        if ast.unparse(ast.parse(expanded(text, told, functions)).body[0]) == ast.unparse(forward):
            return short
    return None


@dataclass
class _Version:
    """A variable between two assignments to it."""

    name: str
    value: str = ""
    """The reference's name for what it holds; empty where that is not known."""


@dataclass
class _Shortened:
    lines: Sequence[Line]
    arguments: Sequence[str]
    kept: list[tuple[ast.stmt, Mapping[str, _Version], Mapping[str, _Version]]] = field(default_factory=list)
    """Statements, with the variables that they read and those that they set."""

    def __post_init__(self) -> None:
        self.now = {name: _Version(name, name) for name in self.arguments}
        self.table: dict[str, str] = {}
        self.result = ""
        self.said = set(self.arguments)
        """The names of the reference that stand for something."""
        for line in self.lines:
            for text in (line.text, line.told):
                statement = ast.parse(text).body[0]
                if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Name):
                    self.result = statement.value.id
                elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                    self.table.setdefault(_key(statement.value), line.makes[0])

    def add(self, statement: ast.stmt) -> None:
        read = dict(self.now)
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if isinstance(statement, ast.Assign) and isinstance(target, ast.Name):
            version = _Version(target.id, self._value(statement.value))
            self.now[target.id] = version
            self.said.add(version.value)
            if version.value and not self._is_copy(statement.value):
                return
            self.kept.append((statement, read, {target.id: version}))
            return
        if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Name):
            self._returned(self.now.get(statement.value.id))
        elif isinstance(statement, ast.Return) and statement.value and (value := self._value(statement.value)):
            statement, read = ast.Return(ast.Name(value, ast.Load())), {}
        made = {name: _Version(name) for name in names_in(statement, ast.Store)}
        self.now.update(made)
        self.kept.append((statement, read, made))

    def statements(self) -> list[ast.stmt]:
        return [_Renamed(read, made).visit(statement) for statement, read, made in self.kept]

    def _value(self, node: ast.expr) -> str:
        """The reference's name for what an expression computes."""
        if isinstance(node, ast.Name):
            return self.now[node.id].value if node.id in self.now else ""
        if self._is_copy(node):
            assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            return self._value(node.func.value)
        unknown = sorted({name for name in names_in(node) if name in self.now and not self.now[name].value})
        key = _key(_Valued(self.now).visit(copy.deepcopy(node)))
        return self._bound(unknown, key) if unknown else self.table.get(key, "")

    def _returned(self, version: _Version | None) -> None:
        if version is not None and not version.value and self.result not in self.said:
            version.value = self.result

    def _bound(self, unknown: Sequence[str], key: str) -> str:
        """What a call of unknown values computes where one line of the reference makes that call: each of them is then
        what that line is given."""
        pattern = re.escape(key)
        for name in unknown:
            pattern = re.sub(rf"\b{name}\b", rf"(?P<{name}>t\\d+)", pattern, count=1)
            pattern = re.sub(rf"(?<!<)\b{name}\b", f"(?P={name})", pattern)
        fits = [(match, made) for text, made in self.table.items() if (match := re.fullmatch(pattern, text))]
        fits = [(match, made) for match, made in fits if not self.said & {*match.groups(), made}]
        if len(fits) != 1 or len(set(fits[0][0].groups())) < len(unknown):
            return ""
        for name in unknown:
            self.now[name].value = fits[0][0][name]
            self.said.add(fits[0][0][name])
        return fits[0][1]

    def _is_copy(self, node: ast.expr) -> bool:
        called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args
        return called and node.func.attr in _SAME and isinstance(node.func.value, ast.Name)  # type: ignore[attr-defined]


class _Valued(ast.NodeTransformer):
    """Variables by the reference's names for what they hold."""

    def __init__(self, now: Mapping[str, _Version]):
        self.now = now

    def visit_Name(self, node: ast.Name) -> ast.AST:
        version = self.now.get(node.id)
        return ast.Name(version.value or node.id if version else node.id, node.ctx)


class _Renamed(ast.NodeTransformer):
    """Variables by the names that they have in the end. One that is called as a value of the reference and holds
    something else has another name."""

    def __init__(self, read: Mapping[str, _Version], made: Mapping[str, _Version]):
        self.read, self.made = read, made

    def visit_Name(self, node: ast.Name) -> ast.AST:
        version = (self.read if isinstance(node.ctx, ast.Load) else self.made).get(node.id)
        if version is None:
            return node
        own = re.sub(r"^(in|t)(\d+)$", r"\1_\2", version.name)
        return ast.Name(version.value or own, node.ctx)


class _Spelled(ast.NodeTransformer):
    """Expressions in one spelling, as far as completions and canonical forms differ."""

    def visit_List(self, node: ast.List) -> ast.AST:
        return ast.Tuple([self.visit(part) for part in node.elts], node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func).replace("torch.nn.functional.", "F.")
        module, _, function = name.rpartition(".")
        if module == "torch" and function in _SIGNS and len(node.args) == 2 and not node.keywords:
            return ast.BinOp(node.args[0], _SIGNS[function], node.args[1])
        return ast.Call(ast.parse(name, mode="eval").body, node.args, node.keywords)


def _key(node: ast.expr) -> str:
    return ast.unparse(ast.fix_missing_locations(_Spelled().visit(copy.deepcopy(node))))


def _forward(tree: ast.Module) -> ast.FunctionDef:
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "forward")
