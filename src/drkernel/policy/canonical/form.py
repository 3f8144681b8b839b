"""The canonical form of a task, and what a policy writes for submissions to it."""

from __future__ import annotations

import ast
import functools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from drkernel.policy.canonical.edits import expanded, lines_of, shortened
from drkernel.policy.canonical.numbers import Rounded, with_all_digits
from drkernel.policy.canonical.repairs import repaired
from drkernel.policy.canonical.told import Told
from drkernel.policy.canonical.trace import Untold, trace
from drkernel.policy.canonical.tuning import tuned

IMPORTS = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
"""
_IMPORTED = {"torch", "nn", "F", "triton", "tl"}
_FORWARD = "def forward(self"
MOST_LINES, SHOWN = 40, 32
"""Of a form with more lines, so many are told: a completion changes these and, with them, all that are alike."""


@dataclass(frozen=True)
class Canonical:
    """A task in canonical form."""

    text: str
    """What a policy reads."""
    frame: Frame | None = None
    """What every submission has; None where the source is no Python."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """Canonical name (`m0`) by path (`net.0`): modules, tensors and numbers of the module."""
    told: Told = field(default_factory=Told)
    """The lines, which completions need not repeat (edits.py)."""
    digits: Mapping[str, str] = field(default_factory=dict)
    """Numbers of which the text has fewer digits, by what it has (numbers.py)."""

    def completion(self, submission: str, entry_point: str = "Model") -> str:
        """What a policy writes for a submission to the source: its kernels, functions and methods, in canonical names,
        without the reference's own lines. As it is where it is no Python."""
        try:
            tree = ast.parse(submission)
        except (SyntaxError, RecursionError, ValueError):
            return submission
        if self.frame is None:
            return submission
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        parts: list[ast.AST] = []
        methods: list[ast.AST] = []
        told = Rounded(self.digits)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name in (entry_point, f"{entry_point}New"):
                given = re.findall(r"^def (\w+)", self.frame.constructor, re.MULTILINE)
                own = [p for p in node.body if isinstance(p, ast.FunctionDef) and p.name not in ("__init__", *given)]
                renamed = [told.visit(_Canonical(self.paths, _arguments(method)).visit(method)) for method in own]
                methods += [shortened(m, self.told, functions) if m.name == "forward" else m for m in renamed]
            elif not isinstance(node, ast.ClassDef) and ast.unparse(node) not in self.frame.statements:
                parts.append(told.visit(node))
        return "\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in [*parts, *methods]) + "\n"

    def submission(self, completion: str, name: str = "ModelNew") -> str | None:
        """The submission that a completion stands for, without what cannot be right (repairs.py); None where it has no
        `forward`."""
        if self.frame is None:
            return completion if completion.strip() else None
        return self.whole(repaired(completion, self.told, self.text, self.frame.before), name)

    def whole(self, completion: str, name: str = "ModelNew") -> str | None:
        """As `submission`, of a completion that is right."""
        kernels, start, methods = completion.partition(_FORWARD)
        if not start or self.frame is None:
            return None
        functions = re.findall(r"^def (\w+)", kernels, re.MULTILINE)
        own = {canonical: path for path, canonical in self.paths.items()}
        replaced = lambda found: _indexed(f"self.{own[found[1]]}") if found[1] in own else found[0]
        methods = re.sub(r"\bself\.([mnru]\d+)\b", replaced, expanded(start + methods, self.told, functions))
        methods = with_all_digits(methods, self.digits)
        body = textwrap.indent(self.frame.constructor + methods, "    ")
        kernels = tuned(with_all_digits(kernels, self.digits), methods)
        return f"{self.frame.before}{kernels}class {name}({self.frame.bases}):\n{body}"


@dataclass(frozen=True)
class Frame:
    """The parts of a submission that follow from the source."""

    before: str
    """Imports, constants, functions and classes."""
    statements: frozenset[str]
    """Those of `before`, which no completion repeats."""
    constructor: str
    """`__init__` and the methods that it calls, without indentation; empty where there is none."""
    bases: str
    """Of the class: `nn.Module`, `nn.Sequential`, or classes of the source."""


@functools.lru_cache(maxsize=4096)
def canonical(source: str, entry_point: str = "Model") -> Canonical:
    """The canonical form of a task; the source itself where it is no Python or has no such class."""
    try:
        tree = ast.parse(source)
        entry = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == entry_point)
    except (SyntaxError, RecursionError, ValueError, StopIteration):
        return Canonical(source)
    try:
        told = trace(source, entry_point)
    except Untold:
        return Canonical(source, _frame(tree, entry))
    frame = _frame(tree, entry, told.has_parts)
    shapes = [f"in{place}: {shape}" for place, shape in enumerate(told.inputs)]
    arguments = "".join(f", in{place}" for place in range(len(shapes)))
    numbers = [f"{told.paths[name]}: {value}" for name, value in told.numbers.items()]
    head = f"{_FORWARD}{arguments}):  # {'; '.join([*shapes, *numbers])}"
    lines = lines_of(told.lines, told.general)
    shown = SHOWN if lines and len(lines) > MOST_LINES else len(told.lines) - 1
    cut = ["..."] if shown < len(told.lines) - 1 else []
    text = "\n".join([head, *(f"    {line}" for line in [*told.lines[:shown], *cut, told.lines[-1]])]) + "\n"
    named = {told.paths[path]: value for path, value in told.numbers.items()}
    return Canonical(
        text, frame, told.paths, Told(lines, told.shapes, told.dtypes, named, shown, told.absent), told.digits
    )


def _frame(tree: ast.Module, entry: ast.ClassDef, has_parts: bool = False) -> Frame:
    """The source without `forward`, and without what makes inputs.

    has_parts: the other classes keep their `forward`, since modules of them are called.
    """
    parts: list[ast.AST] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node is not entry:
            kept = [part for part in node.body if has_parts or not _is_method(part, "forward")]
            parts.append(ast.ClassDef(node.name, node.bases, node.keywords, kept or [ast.Pass()], node.decorator_list))
        elif not _is_left_out(node) and node is not entry:
            parts.append(node)
    methods = {part.name: part for part in entry.body if isinstance(part, ast.FunctionDef) and part.name != "forward"}
    kept = [methods[name] for name in _called(methods, "__init__")] if "__init__" in methods else []
    others = [part for part in entry.body if isinstance(part, ast.Assign | ast.AnnAssign)]
    parts = [part for part in parts if not _hides_an_import(part, [*parts, *others, *kept])]
    constructor = [_Constructor().visit(method) for method in [*others, *kept]]
    statements = frozenset([*IMPORTS.splitlines(), "import math", *map(ast.unparse, parts)])
    bases = ", ".join(map(ast.unparse, entry.bases))
    return Frame(IMPORTS + _unparsed(parts), statements, _unparsed(constructor), bases)


def _unparsed(nodes: Sequence[ast.AST]) -> str:
    return "".join(ast.unparse(ast.fix_missing_locations(node)) + "\n" for node in nodes)


def _is_method(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _is_left_out(node: ast.AST) -> bool:
    """Whether a statement of the file is of no use to a submission: texts, what makes inputs, what runs as a script,
    and imports that every submission has."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return ast.unparse(node) in IMPORTS
    made = _is_method(node, "get_inputs") or _is_method(node, "get_init_inputs")
    return made or isinstance(node, ast.Expr | ast.If)


def _hides_an_import(node: ast.AST, others: Sequence[ast.AST]) -> bool:
    """Whether it gives a name that every submission imports another meaning (F = 64) that nothing reads."""
    if not isinstance(node, ast.Assign) or not all(isinstance(target, ast.Name) for target in node.targets):
        return False
    names = {target.id for target in node.targets if isinstance(target, ast.Name)}
    read = {
        n.id for other in others for n in ast.walk(other) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    }
    return names <= _IMPORTED - read


def _called(methods: Mapping[str, ast.FunctionDef], first: str) -> list[str]:
    """The methods that the first one needs, itself included, in the order of the class."""
    needed, waiting = {first}, [first]
    while waiting:
        nodes = ast.walk(methods[waiting.pop()])
        new = {n.attr for n in nodes if isinstance(n, ast.Attribute)} & methods.keys() - needed
        needed |= new
        waiting += new
    return [name for name in methods if name in needed]


class _Constructor(ast.NodeTransformer):
    """`super(Model, self)` is `super()`, since the class has another name."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return ast.Call(node.func, [], [])
        return self.generic_visit(node)


class _Canonical(ast.NodeTransformer):
    """Canonical names of arguments and of what the module holds."""

    def __init__(self, paths: Mapping[str, str], arguments: Mapping[str, str]):
        self.paths, self.arguments = paths, arguments

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.arguments.get(node.id, node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self.arguments.get(node.arg, node.arg))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        if ast.get_docstring(node) is not None:
            del node.body[0]
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        found = self._held(node)
        return found or self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return self._held(node) or self.generic_visit(node)

    def _held(self, node: ast.expr) -> ast.AST | None:
        name = self.paths.get(_path(node) or "")
        return ast.Attribute(ast.Name("self", ast.Load()), name, ast.Load()) if name else None


def _path(node: ast.expr) -> str | None:
    """`net.0.weight` of `self.net[0].weight`; None of what is no such path."""
    match node:
        case ast.Name(id="self"):
            return ""
        case ast.Attribute(value=value, attr=name):
            before = _path(value)
        case ast.Subscript(value=value, slice=ast.Constant(value=int() | str() as place)):
            before, name = _path(value), str(place)
        case _:
            return None
    return None if before is None else f"{before}.{name}".lstrip(".")


def _arguments(method: ast.FunctionDef) -> dict[str, str]:
    """Canonical names of a method's arguments."""
    found: Iterator[ast.arg] = iter(method.args.args[1:])
    return {argument.arg: f"in{place}" for place, argument in enumerate(found)}


def _indexed(path: str) -> str:
    """`self.net[0].weight` of `self.net.0.weight`; a key that is no name is one in brackets, too."""
    first, *parts = path.split(".")
    keys = [f"[{part}]" if part.isdigit() else f".{part}" if part.isidentifier() else f"[{part!r}]" for part in parts]
    return first + "".join(keys)
