"""Completions without the parts that cannot be right.

    def kernel1(t0_ptr, o_ptr, T, BLOCK): ...            kernel1 loads all that it uses;
    def kernel2(t4_ptr, o_ptr, T, BLOCK): ...            kernel2 uses `t5`, which it does not load;
    def forward(self, in0):                              the reference has a second input, and returns a pair
        t1 = f1(t0)
        t5 = f2(t4)                                  <-- left out, so the reference's own line makes `t5`
        t9 = f1(t8, self.m2.bias)                    <-- left out: `t9 = F.relu(t8)` needs no bias
        return t9

What a completion changes are lines of the reference, each for itself. So one that cannot run, or is not given what
these lines are given, takes no other with it. The arguments of `forward` and the form of its result are the
reference's.
A completion of which nothing would be left stays as it is: its error says what was wrong.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from drkernel.policy.canonical.held import ROLES
from drkernel.policy.canonical.told import Line, Told, names_in

_LAUNCH_OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg"}
_TENSOR = re.compile(r"self\.m\d+(?:\.\w+)?")
_VALUE = re.compile(r"\b(?:t\d+|in\d+(?:\[\d+\])*)(?!\w)")
_NUMBERS = ("num_groups",)
"""What else a call may be given of a module."""
_SHAPE_ALONE = re.compile(r"(torch\.\w+_like|[\w.]+\.new_\w+)\(")
"""Calls of which the values of the first argument say nothing."""


def repaired(completion: str, told: Told, text: str, before: str) -> str:
    """The completion without what cannot be right; itself where nothing is wrong, or nothing would be left.

    Args:
        text: the canonical form, as a policy reads it.
        before: imports, constants, functions and classes of the reference.
    """
    kernels, start, methods = completion.partition("def forward(self")
    if not told.lines or not start or re.search(r"^def ", methods, re.MULTILINE):
        return completion
    kept = _Functions.of(kernels, _bound(before))
    body = _statements(methods)
    own = set(re.findall(r"^def (\w+)", kernels, re.MULTILINE))
    known = {*_bound(before), *kept.names, *dir(builtins), "self", *told.makers, *_inputs(text)}
    right = [
        one for one in body if not isinstance(one, ast.Return) and _Statement(one, own).is_right(kept, told, known)
    ]
    if not any(own.intersection(names_in(one)) for one in right):
        return completion
    result = _result([one for one in body if isinstance(one, ast.Return)], told, known)
    head = text.partition("\n")[0].partition("  #")[0]
    lines = [f"    {line}" for one in [*right, result] for line in ast.unparse(one).splitlines()]
    return "\n".join([*kept.texts, head, *lines, ""])


def _inputs(text: str) -> list[str]:
    return re.findall(r"\bin\d+", text.partition("\n")[0].partition("  #")[0])


def _bound(source: str) -> set[str]:
    """The names that the top level of a source gives."""
    found = set[str]()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        else:
            found |= set(names_in(node, ast.Store))
    return found


def _compiled(text: str) -> ast.Module | None:
    """The tree of a text that is Python by all rules: no argument twice, no `return` outside a function."""
    try:
        compile(text, "answer", "exec")
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


@dataclass
class _Functions:
    """The functions of a completion, and what else stands before its `forward`, without those that cannot run."""

    texts: list[str]
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, kernels: str, bound: Collection[str]) -> _Functions:
        parts = [(part, tree) for part in _parts(kernels) if (tree := _compiled(part)) is not None]
        while True:
            found = cls([part for part, _ in parts])
            for _, tree in parts:
                found.functions |= {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
                found.names |= _bound(ast.unparse(tree))
            known = {*bound, *found.names, *dir(builtins)}
            runs = [(part, tree) for part, tree in parts if all(found._runs(node, known) for node in tree.body)]
            if len(runs) == len(parts):
                return found
            parts = runs

    def _runs(self, node: ast.stmt, known: Collection[str]) -> bool:
        if not isinstance(node, ast.FunctionDef):
            return set(names_in(node, ast.Load)) <= set(known)
        arguments = [argument.arg for argument in ast.walk(node) if isinstance(argument, ast.arg)]
        unknown = set(names_in(node, ast.Load)) - {*known, *arguments, *names_in(node, ast.Store)}
        launches = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
        return not unknown and all(self._is_launched_right(call) for call in launches)

    def _is_launched_right(self, call: ast.Call) -> bool:
        """Whether a launch of one of the functions gives each of its arguments once."""
        match call.func:
            case ast.Subscript(value=ast.Name(id=name)) if name in self.functions:
                return _gives_all(call, self.functions[name])
        return True


def _parts(kernels: str) -> Iterator[str]:
    """The statements of the top level, of a text that need not be Python; a decorator is a part of its function."""
    part: list[str] = []
    for line in kernels.splitlines():
        begins = line[:1] not in ("", " ", ")", "]", "}", "#")
        if begins and part and not part[-1].startswith("@"):
            yield "\n".join(part)
            part = []
        part.append(line)
    yield "\n".join(part)


def _gives_all(call: ast.Call, function: ast.FunctionDef) -> bool:
    if any(isinstance(value, ast.Starred) for value in call.args) or None in [word.arg for word in call.keywords]:
        return True
    names = [argument.arg for argument in function.args.args]
    words = [word.arg for word in call.keywords if word.arg in names or word.arg not in _LAUNCH_OPTIONS]
    given = [*names[: len(call.args)], *words]
    least = set(names[: len(names) - len(function.args.defaults)])
    return len(call.args) <= len(names) and len(set(given)) == len(given) and least <= set(given) <= set(names)


def _statements(methods: str) -> list[ast.stmt]:
    """The statements of `forward`, of a text that need not be Python: those of one line each that are."""
    if tree := _compiled(f"def forward(self{methods}"):
        return tree.body[0].body  # type: ignore[attr-defined]
    texts = [line.strip() for line in methods.splitlines()[1:] if re.match(r" {4}\S", line)]
    found = []
    for text in texts:
        if tree := _compiled(f"def forward():\n    {text}"):
            found += tree.body[0].body  # type: ignore[attr-defined]
    return found


def _result(returns: Sequence[ast.stmt], told: Told, known: Collection[str]) -> ast.stmt:
    """The reference's `return`, unless the completion returns something that has no name in the reference."""
    theirs = ast.parse(f"def forward():\n    {told.lines[-1].text}").body[0].body[0]  # type: ignore[attr-defined]
    read = {name for one in returns for name in names_in(one, ast.Load)}
    is_own = len(returns) == 1 and read <= set(known) and not all(map(_VALUE.fullmatch, read))
    return returns[0] if is_own else theirs


@dataclass
class _Statement:
    """A statement of a completion's `forward`.

    Args:
        own: the names of the completion's functions, of those that cannot run, too.
    """

    node: ast.stmt
    own: Collection[str]

    def is_right(self, kept: _Functions, told: Told, known: set[str]) -> bool:
        """Whether it can be, as far as names tell. What it sets is known from then on."""
        match self.node:
            case ast.Assign([ast.Name(made)], ast.Call(ast.Name(function), args) as call) if function in self.own:
                right = function in kept.functions and _gives_all(call, kept.functions[function])
                right = right and (made not in told.makers or _fits(made, args, told))
            case _:
                right = True
        right = right and set(names_in(self.node, ast.Load)) <= known and self._has_all(told)
        if right:
            known.update(names_in(self.node, ast.Store))
        return right

    def _has_all(self, told: Told) -> bool:
        """Whether the module has all tensors and modules that are read."""
        held = {name.removeprefix("self.") for name in told.shapes}
        modules = {name.partition(".")[0] for name in held}
        modules |= {found for line in told.lines for found in re.findall(r"\bself\.(m\d+)", line.told)}
        for name in re.findall(r"\bself\.(m\d+(?:\.\w+)?)", ast.unparse(self.node)):
            module, _, role = name.partition(".")
            is_known = name in held or not role or ROLES.fullmatch(role) or role in _NUMBERS
            if module not in modules or not is_known:
                return False
        return True


def _fits(made: str, args: Sequence[ast.expr], told: Told) -> bool:
    """Whether a call that makes a value is given the tensors from which the reference's lines make it: all of them, and
    no others."""
    given = {text for text in map(ast.unparse, args) if _TENSOR.fullmatch(text) or _VALUE.fullmatch(text)}
    needed, reached = set[str](), set[str]()
    waiting, seen = [made], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in given and name != made:
            reached.add(name)
        elif name not in told.makers:
            needed.add(name)
        else:
            line = told.makers[name]
            needed |= _tensors_of(line, told)
            waiting += _values_of(line)
    reached |= needed
    modules = {name.partition(".")[2].partition(".")[0] for name in needed if name.startswith("self.")}
    mine = {name for name in given if name.startswith("self.")}
    extra = [name for name in mine if name.split(".")[1] not in modules] + [g for g in given - mine if g not in reached]
    return not extra and needed <= given


def _values_of(line: Line) -> set[str]:
    """The values that a line reads, as far as more than their shapes counts."""
    code = line.told.partition("  #")[0].partition(" = ")[2]
    return set() if _SHAPE_ALONE.match(code) else {found[0] for found in _VALUE.finditer(code)}


def _tensors_of(line: Line, told: Told) -> set[str]:
    """The tensors of the module that a line reads: `self.m0.weight` of `self.m0(t0)  # F.linear(weight (8, 4))`."""
    code, _, beside = line.told.partition("  #")
    found = set(_TENSOR.findall(code))
    roles = [role for role in ("weight", "bias") if re.search(rf"\b{role}\b", beside)]
    called = {name for name in found if f"{name}(" in code and "." not in name.removeprefix("self.")}
    return found - called | {f"{name}.{role}" for name in called for role in roles or [""]}
