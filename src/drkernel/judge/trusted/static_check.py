"""The static check: what a submission may not contain, found in its syntax tree in a few milliseconds.

It is a cheap filter before anything runs, and it accepts nothing: what passes it meets the sandbox and the examiner.
Comments, strings and names are no evidence. Blocks under `if __name__ == "__main__":` never run and are not inspected.
`denylist` has the tables; judge/README.md, "Classes of cheats", says which cheats it refuses.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from drkernel.judge.trusted import denylist
from drkernel.types import Status, Verdict

MAX_SOURCE = 100_000
"""Characters of a source."""


@dataclass(frozen=True)
class Refusal:
    """Why a submission is not run."""

    status: Status
    reason: str
    detail: str
    evidence: dict[str, Any] = field(default_factory=dict)

    def to_verdict(self, device: str = "") -> Verdict:
        """The verdict on the submission, whatever the device would have found."""
        return Verdict(self.status, self.reason, self.detail, device=device, evidence=self.evidence)


class _Found(Exception):
    """A forbidden construct and its line."""

    def __init__(self, node: ast.AST, what: str):
        super().__init__(what)
        self.line, self.what = getattr(node, "lineno", None), what


def digest(source: str) -> str:
    """Hash of a source that ignores trailing white space."""
    text = "\n".join(line.rstrip() for line in source.rstrip().splitlines())
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def inspect(source: str, answer_name: str, expect_kernel: bool = True) -> Refusal | None:
    """Why a submission must not run, or None. Nothing of it is executed.

    Args:
        source: text of the submission.
        answer_name: the class that it must define.
        expect_kernel: whether a source without a Triton kernel is refused as a hack.
    """
    if len(source) > MAX_SOURCE:
        return Refusal(
            "invalid", "too_large", f"the source has {len(source)} characters, at most {MAX_SOURCE} are allowed"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except SyntaxError as error:
        return _syntax_error(error, source)
    except (ValueError, RecursionError, MemoryError) as error:
        return Refusal("invalid", "syntax_error", f"{type(error).__name__}: {error}")
    tree.body = [node for node in tree.body if not _is_main_block(node)]
    if not any(isinstance(node, ast.ClassDef) and node.name == answer_name for node in ast.walk(tree)):
        return Refusal("invalid", "no_model", f"the source does not define a class {answer_name}")
    names = _Names(tree)
    try:
        _Check(names).visit(tree)
        _refuse_phase_switch(tree)
    except _Found as found:
        text = _line(source, found.line)
        detail = (
            f"line {found.line}: `{text}`: {found.what} is not allowed"
            if found.line
            else f"{found.what} is not allowed"
        )
        return Refusal("hack", "forbidden", detail, {"line": found.line, "forbidden": found.what})
    except RecursionError:
        return Refusal("invalid", "syntax_error", "the source is nested too deeply")
    kernels = (names.is_kernel(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    if expect_kernel and not any(kernels):
        return Refusal(
            "hack", "no_triton_kernel", "the source defines no @triton.jit function; PyTorch alone is no answer"
        )
    return None


def _syntax_error(error: SyntaxError, source: str) -> Refusal:
    text = _line(source, error.lineno)
    place = f"line {error.lineno}: `{text}`: " if error.lineno else ""
    return Refusal("invalid", "syntax_error", f"{place}{error.msg}", {"line": error.lineno})


def _line(source: str, number: int | None) -> str:
    lines = source.splitlines()
    return lines[number - 1].strip()[:120] if number and number <= len(lines) else ""


def _is_main_block(node: ast.stmt) -> bool:
    test = getattr(node, "test", None)
    if (
        not isinstance(node, ast.If)
        or node.orelse
        or not isinstance(test, ast.Compare)
        or not isinstance(test.ops[0], ast.Eq)
    ):
        return False
    sides = [test.left, test.comparators[0]]
    name = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
    return name and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides)


class _Names:
    """What imported names stand for: `tl` is `triton.language`, `F.relu` is `torch.nn.functional.relu`."""

    def __init__(self, tree: ast.Module):
        self.origin: dict[str, str] = {}
        self.modules: set[str] = set()
        assigned = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    root = alias.name.partition(".")[0]
                    self.origin[alias.asname or root] = alias.name if alias.asname else root
                    self.modules.add(self.origin[alias.asname or root])
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.origin[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                assigned.append((node.targets[0].id, node.value))
        for _ in range(3):
            for name, value in assigned:
                if name not in self.origin and (full := self.full(value)):
                    self.origin[name] = full

    def full(self, node: ast.AST) -> str | None:
        """The dotted origin of a name or attribute chain; None if it does not start at an import."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.origin:
            return None
        return ".".join([self.origin[node.id], *reversed(parts)])

    def is_kernel(self, node: ast.FunctionDef) -> bool:
        targets = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
        names = [self.full(target) or "" for target in targets]
        return any(name.startswith("triton.") and name.rpartition(".")[2] == "jit" for name in names)


class _Check(ast.NodeVisitor):
    """Raises _Found at the first forbidden construct."""

    def __init__(self, names: _Names):
        self.names = names
        self.local: list[set[str]] = []
        """Names that the enclosing functions and comprehensions bind: `vars` may be a variable."""

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._module(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or not node.module:
            raise _Found(node, "a relative import")
        for alias in node.names:
            if alias.name == "*" and node.module in denylist.ONLY:
                raise _Found(node, f"import of everything from {node.module}")
            self._module(node, node.module if alias.name == "*" else f"{node.module}.{alias.name}")

    def _module(self, node: ast.AST, name: str) -> None:
        if name.partition(".")[0] not in denylist.IMPORTS:
            raise _Found(node, f"import of {name}")
        self._dotted(node, name)

    def _dotted(self, node: ast.AST, name: str) -> None:
        """Refuses a dotted origin that leads to, or through, something forbidden."""
        parts = name.split(".")
        for cut in range(1, len(parts)):
            module, member = ".".join(parts[:cut]), parts[cut]
            full = f"{module}.{member}"
            private = module in denylist.INTERNAL and member.startswith("_") and not member.startswith("__")
            if module in denylist.ONLY:
                denied = member not in denylist.ONLY[module]
            else:
                denied = full in denylist.MODULES and full not in denylist.ONLY
            if denied or private or member in denylist.MEMBERS.get(module, ()):
                raise _Found(node, full)

    def visit_Name(self, node: ast.Name) -> None:
        local = any(node.id in names for names in self.local) or node.id in self.names.origin
        if node.id in denylist.BUILTINS and not local:
            raise _Found(node, node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        inner = node.value
        if isinstance(node.ctx, ast.Store) and isinstance(inner, ast.Call) and self._is(inner.func, "type"):
            raise _Found(node, "assignment to an attribute of a type")
        if node.attr == "__name__" and isinstance(inner, ast.Attribute) and inner.attr == "__class__":
            self.visit(inner.value)
            return
        if node.attr in denylist.ATTRIBUTES:
            raise _Found(node, f".{node.attr}")
        if full := self.names.full(node):
            self._dotted(node, full)
            self._frozen(node, full)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if full := self.names.full(node.value):
            self._frozen(node, full)
        self.generic_visit(node)

    def _frozen(self, node: ast.Attribute | ast.Subscript, full: str) -> None:
        stored = isinstance(node.ctx, (ast.Store, ast.Del))
        if stored and full.partition(".")[0] in denylist.FROZEN and not full.startswith(denylist.SETTABLE):
            raise _Found(node, f"assignment to {full}")

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name in ("getattr", "setattr"):
            self._reflection(node, name)
        elif name not in ("hasattr", "print", "help"):
            self._no_modules([*node.args, *(keyword.value for keyword in node.keywords)])
        if name == "type" and len(node.args) != 1:
            raise _Found(node, "type() with several arguments")
        self.generic_visit(node)

    def _collection(self, node: ast.Tuple | ast.List | ast.Set) -> None:
        self._no_modules(node.elts)
        self.generic_visit(node)

    visit_Tuple = visit_List = visit_Set = _collection

    def visit_Dict(self, node: ast.Dict) -> None:
        self._no_modules(node.values)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        self._no_modules([node.value] if node.value else [])
        self.generic_visit(node)

    def _no_modules(self, nodes: list[ast.expr]) -> None:
        """A module may not be a value, because its alias could be patched: `patch(json)`, where `m.dumps = forged`."""
        for node in nodes:
            inner = node.value if isinstance(node, ast.Starred) else node
            full = self.names.full(inner)
            if full and (full in self.names.modules or full in sys.modules):
                raise _Found(node, f"the module {full} as a value")

    @staticmethod
    def _is(node: ast.AST, name: str) -> bool:
        return isinstance(node, ast.Name) and node.id == name

    def _reflection(self, node: ast.Call, name: str) -> None:
        """A literal name is checked like the attribute that it names; `f"layer{i}"` is allowed on own objects."""
        if len(node.args) < 2:
            raise _Found(node, f"{name} with a computed name")
        target, attribute = node.args[:2]
        if isinstance(attribute, ast.Constant) and isinstance(attribute.value, str):
            context = ast.Store() if name == "setattr" else ast.Load()
            self.visit_Attribute(ast.copy_location(ast.Attribute(target, attribute.value, context), node))
            return
        start = attribute.values[0] if isinstance(attribute, ast.JoinedStr) and attribute.values else None
        plain = isinstance(start, ast.Constant) and str(start.value)[:1].isalpha()
        if not plain or self.names.full(target):
            raise _Found(node, f"{name} with a computed name")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any(self.names.full(base) in denylist.TENSORS for base in node.bases):
            raise _Found(node, f"the Tensor subclass {node.name}")
        if any(keyword.arg == "metaclass" for keyword in node.keywords):
            raise _Found(node, "a metaclass")
        for member in node.body:
            for name in {getattr(member, "name", "")} | _bound(member):
                if name in denylist.METHODS:
                    raise _Found(member, f"the definition of {name}")
        self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        raise _Found(node, "an async function")

    def _scope(self, node: ast.AST) -> None:
        self.local.append(_bound(node))
        self.generic_visit(node)
        self.local.pop()

    visit_FunctionDef = visit_Lambda = visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _scope


_SCOPES = (ast.FunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _bound(scope: ast.AST) -> set[str]:
    """The names that a function, a comprehension or a statement binds, without those of inner scopes."""
    names, todo = set(), list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            return set()
        if not isinstance(node, _SCOPES):
            todo += ast.iter_child_nodes(node)
    return names


def _refuse_phase_switch(tree: ast.Module) -> None:
    """Refuses a branch on a counter of calls: `self.n += 1` in one place and `if self.n > 5` in another."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name != "__init__"]
    counters = {ast.unparse(node.target) for function in functions for node in _persistent_increments(function)}
    if not counters:
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            parts = (p for p in ast.walk(node.test) if isinstance(p, (ast.Attribute, ast.Subscript, ast.Name)))
            if any(ast.unparse(part) in counters for part in parts):
                raise _Found(node, "a branch on a counter of calls")


def _persistent_increments(function: ast.FunctionDef) -> Iterator[ast.AugAssign]:
    """`x += constant` on attributes, items and globals: state that outlives the call."""
    nodes = list(ast.walk(function))
    shared = {name for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    for node in nodes:
        if not isinstance(node, ast.AugAssign) or not isinstance(node.value, ast.Constant):
            continue
        if not isinstance(node.target, ast.Name) or node.target.id in shared:
            yield node
