"""Completions without the parts that cannot be right.

    def kernel1(t0_ptr, o_ptr, T, BLOCK): ...            kernel1 loads all that it uses;
    def kernel2(t4_ptr, o_ptr, T, BLOCK): ...            kernel2 uses `t5`, which it does not load;
    def forward(self, in0):                              the reference has a second input, and returns a pair
        t1 = f1(t0)
        t5 = f2(t4)                                  <-- left out, so the reference's own line makes `t5`
        t9 = f1(t8, self.m2.bias)                    <-- left out: `t9 = F.relu(t8)` needs no bias
        return t9

What a completion changes are lines of the reference, each for itself. So one that cannot run, or is not given what
these lines are given, or makes another size than they make (host.py), takes no other with it. The arguments of
`forward` and the form of its result are the reference's.
A completion of which nothing would be left stays as it is: its error says what was wrong. So does one of which
something would be left out while a statement stays of which nobody knows what it makes: it may rest on what is left
out, or the other way round.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import re
import symtable
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from drkernel.policy.canonical import host
from drkernel.policy.canonical.held import ROLES
from drkernel.policy.canonical.reads import widened
from drkernel.policy.canonical.stands import VALUE, block_of, reads_beyond, stands, tensors
from drkernel.policy.canonical.told import Told, names_in
from drkernel.policy.canonical.turned import turned
from drkernel.policy.canonical.windows import windows_of, with_windows

_LAUNCH_OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg"}
_NUMBERS = ("num_groups", "shape")
"""What else a call may be given of a module."""
_ByName = Mapping[str, ast.FunctionDef]
_COMPUTES = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp)


def repaired(completion: str, told: Told, text: str, before: str) -> str:
    """The completion without what cannot be right; itself where nothing is wrong, or nothing would be left.

    Args:
        text: the canonical form, as a policy reads it.
        before: imports, constants, functions and classes of the reference.
    """
    kernels, start, methods = completion.partition("def forward(self")
    if not told.lines or not start or re.search(r"^def ", methods, re.MULTILINE):
        return completion
    bound = _bound(ast.parse(before))
    body = turned(_statements(methods), told)
    kept = _Functions.of(kernels, bound, lambda functions: _mended(functions, body, told))
    own = set(re.findall(r"^def (\w+)", kernels, re.MULTILINE))
    known = {*bound, *kept.names, *dir(builtins), "self", *told.makers, *_inputs(text)}
    statements = _Statements(own, kept, told, known)
    given = [one for one in body if not isinstance(one, ast.Return)]
    right = [found for one in given if (found := statements.right(one))]
    if not any(own.intersection(names_in(one)) for one in right):
        return completion
    if right != given and not all(map(statements.is_known, right)):
        return completion
    result = _result([one for one in body if isinstance(one, ast.Return)], told, known)
    head = text.partition("\n")[0].partition("  #")[0]
    lines = [f"    {line}" for one in [*right, result] for line in ast.unparse(one).splitlines()]
    return "\n".join([*kept.texts, head, *lines, ""])


def _mended(functions: _ByName, body: Sequence[ast.stmt], told: Told) -> bool:
    """Gives windows the numbers that they have in the lines for which the calls of `forward` stand."""
    changed = False
    for statement in body:
        match statement:
            case ast.Assign([ast.Name(made)], ast.Call(ast.Name(name)) as call) if name in functions:
                lines = [line for line in block_of(made, call, told) if windows_of(line, told)]
                if len(lines) == 1:
                    changed |= with_windows(functions[name], functions, lines[0], told)
    return changed


def _inputs(text: str) -> list[str]:
    return re.findall(r"\bin\d+", text.partition("\n")[0].partition("  #")[0])


def _bound(tree: ast.Module) -> set[str]:
    """The names that the top level of a source gives."""
    found = set[str]()
    for node in tree.body:
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
        compile(text, "completion", "exec")
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: of what is deeply nested
        return None


def _read(node: ast.stmt) -> set[str]:
    """The names that a statement reads and does not give itself; those of functions in it, too."""
    waiting, found = [symtable.symtable(ast.unparse(node), "completion", "exec")], set[str]()
    own = set[str]() if isinstance(node, ast.Assign) else {*_bound(ast.Module([node], []))}
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        found |= {
            name.get_name()
            for name in table.get_symbols()
            if name.is_referenced() and (name.is_global() or table.get_type() == "module")
        }
    return found - own


@dataclass
class _Functions:
    """The functions of a completion, and what else stands before its `forward`, without those that cannot run."""

    texts: list[str]
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, kernels: str, bound: Collection[str], mend: Callable[[_ByName], bool]) -> _Functions:
        """mend: mends functions, and says whether that changed anything."""
        parts = [(part, tree) for part in _parts(kernels) if (tree := _compiled(part)) is not None]
        if mend({node.name: node for _, tree in parts for node in tree.body if isinstance(node, ast.FunctionDef)}):
            parts = [(ast.unparse(ast.fix_missing_locations(tree)), tree) for _, tree in parts]
        while True:
            found = cls([part for part, _ in parts])
            for _, tree in parts:
                found.functions |= {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
                found.names |= _bound(tree)
            known = {*bound, *found.names, *dir(builtins)}
            runs = [(part, tree) for part, tree in parts if all(found._runs(node, known) for node in tree.body)]
            if len(runs) == len(parts):
                return found
            parts = runs

    def _runs(self, node: ast.stmt, known: Collection[str]) -> bool:
        launches = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
        return _read(node) <= set(known) and all(self._is_launched_right(call) for call in launches)

    def _is_launched_right(self, call: ast.Call) -> bool:
        """Whether a launch of one of the functions gives each of its arguments once."""
        match call.func:
            case ast.Subscript(value=ast.Name(id=name)) if name in self.functions:
                return _gives_all(call, self.functions[name])
        return True


def _parts(kernels: str) -> Iterator[str]:
    """The statements of the top level; of a text that is not Python, what looks like them. A decorator is a part of its
    function."""
    if tree := _compiled(kernels):
        yield from map(ast.unparse, tree.body)
        return
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
    tuned = len(function.decorator_list) > 1  # `triton.autotune` gives arguments, too
    least = set() if tuned else set(names[: len(names) - len(function.args.defaults)])
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
    """The reference's `return`, unless the completion returns something else than values that this returns."""
    theirs = ast.parse(f"def forward():\n    {told.lines[-1].text}").body[0].body[0]  # type: ignore[attr-defined]
    read = {name for one in returns for name in names_in(one, ast.Load)}
    computes = any(isinstance(node, _COMPUTES) for one in returns for node in ast.walk(one))
    is_own = len(returns) == 1 and read <= set(known) and (computes or not read <= told.lines[-1].reads)
    return returns[0] if is_own else theirs


@dataclass
class _Statements:
    """The statements of a completion's `forward`, one after the other.

    Args:
        own: the names of the completion's functions, of those that cannot run, too.
        known: the names that statements may read.
    """

    own: Collection[str]
    kept: _Functions
    told: Told
    known: set[str]

    def right(self, statement: ast.stmt) -> ast.stmt | None:
        """The statement, if it can be right as far as names tell. A call that cannot may be one of the values that the
        function's arguments are named after. What a statement sets is known from then on."""
        right = filter(self._may_be, (statement, *self._as_named(statement)))
        found = next((wide for one in right if (wide := self._widened(one))), None)
        if found:
            self.known.update(names_in(found, ast.Store))
        return found

    def _may_be(self, statement: ast.stmt) -> bool:
        match statement:
            case ast.Assign([ast.Name(made)], ast.Call(ast.Name(function)) as call) if function in self.own:
                if function not in self.kept.functions or not _gives_all(call, self.kept.functions[function]):
                    return False
                if not stands(made, call, self.kept.functions, self.told):
                    return False
        return _read(statement) <= self.known and self._has_all(statement)

    @functools.cached_property
    def _lines(self) -> set[str]:
        """The reference's lines, as Python writes them."""
        texts = (text for line in self.told.lines if line.makes for text in (line.text, line.told))
        return {ast.unparse(ast.parse(text)) for text in texts}

    def is_known(self, statement: ast.stmt) -> bool:
        """Whether what a statement that may be right makes is the reference's value of this name, or no value."""
        if ast.unparse(statement) in self._lines:
            return True
        match statement:
            case ast.Assign([ast.Name(made)], ast.Call(ast.Name(function))) if function in self.own:
                return made in self.told.makers
        return not any(map(VALUE.fullmatch, names_in(statement)))

    def _as_named(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        match statement:
            case ast.Assign([ast.Name()], ast.Call(ast.Name(function), args)) if function in self.kept.functions:
                named = [argument.arg for argument in self.kept.functions[function].args.args]
                if len(named) == len(args):
                    renamed = copy.deepcopy(statement)
                    renamed.value.args = [  # type: ignore[attr-defined]
                        ast.Name(name, ast.Load()) if VALUE.fullmatch(name) else given
                        for name, given in zip(named, args, strict=True)
                    ]
                    yield renamed

    def _widened(self, statement: ast.stmt) -> ast.stmt | None:
        """The statement with arguments as large as they are read; None where they cannot be as large."""
        match statement:
            case ast.Assign(targets, ast.Call(ast.Name(name), args) as call) if name in self.kept.functions:
                try:
                    wide = widened(call, self.kept.functions, tensors(args, self.told))
                    if wide is call and reads_beyond(call, self.kept.functions, self.told):
                        return None
                except host.Wrong:
                    return None
                return ast.fix_missing_locations(ast.Assign(targets, wide)) if wide else None
        return statement

    def _has_all(self, statement: ast.stmt) -> bool:
        """Whether the module has all tensors and modules that are read."""
        held = {name.removeprefix("self.") for name in self.told.shapes}
        modules = {name.partition(".")[0] for name in held}
        modules |= {found for line in self.told.lines for found in re.findall(r"\bself\.(m\d+)", line.told)}
        for name in re.findall(r"\bself\.(m\d+(?:\.\w+)?)", ast.unparse(statement)):
            module, _, role = name.partition(".")
            is_known = name in held or not role or ROLES.fullmatch(role) or role in _NUMBERS
            if module not in modules or not is_known or f"self.{name}" in self.told.absent:
                return False
        return True
