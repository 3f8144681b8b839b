"""Mutation operators: each makes one dishonest change to an honest submission, at a place that a seed chooses.

An operator is a function on a `Draft` in the registry OPERATORS. It edits the tree and says whether it changed it. Its
docstring says what the cheat is. `mutate` applies one by name and returns source text.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

FAMILIES = ("value", "replay", "place", "library")
"""What a mutant cheats with. `value`: its outputs are other ones. `replay`: it answers with what it computed before.
`place`: the work is right, and lies elsewhere than in forward. `library`: PyTorch does it."""


@dataclass
class Draft:
    """A submission that is being changed."""

    tree: ast.Module
    task: ast.Module
    """The module of its task."""
    random: random.Random

    def kernels(self) -> list[ast.FunctionDef]:
        return [node for node in self.tree.body if isinstance(node, ast.FunctionDef) and _decorated(node)]

    def in_kernels(self, kind: type | tuple[type, ...]) -> list:
        return [node for kernel in self.kernels() for part in kernel.body for node in ast.walk(part) if _is(node, kind)]

    def calls(self, *names: str) -> list[ast.Call]:
        """The calls of these functions of Triton's language, in kernels."""
        return [node for node in self.in_kernels(ast.Call) if ast.unparse(node.func) in {f"tl.{n}" for n in names}]

    def model(self) -> ast.ClassDef:
        return next(n for n in self.tree.body if isinstance(n, ast.ClassDef) and n.name == "ModelNew")

    def choose(self, nodes: list) -> Any:
        """One of these nodes, or None."""
        return self.random.choice(nodes) if nodes else None

    def replace(self, old: ast.AST | None, new: Callable[[str], str]) -> bool:
        """Replaces an expression by what `new` makes of its text."""
        if old is None:
            return False
        value = ast.parse(new(ast.unparse(old)), mode="eval").body
        _Replace(old, value).visit(self.tree)  # in place, since it is no module that is replaced
        return True

    def replace_any(self, nodes: list, new: Callable[[str], str]) -> bool:
        return self.replace(self.choose(nodes), new)

    def before_model(self, text: str) -> None:
        """Inserts statements in front of ModelNew."""
        place = self.tree.body.index(self.model())
        self.tree.body[place:place] = ast.parse(text).body

    def wrap_forward(self, text: str, before: str = "") -> bool:
        """Renames forward to `_work`, and adds methods to ModelNew."""
        model = self.model()
        for node in model.body:
            if isinstance(node, ast.FunctionDef) and node.name == "forward":
                node.name = "_work"
        if not any(isinstance(node, ast.FunctionDef) and node.name == "_work" for node in model.body):
            return False
        model.body += ast.parse(text).body
        self.before_model(before)
        return True


class _Replace(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST):
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else super().generic_visit(node)


def _is(node: ast.AST, kind: type | tuple[type, ...]) -> bool:
    return isinstance(node, kind)


def _decorated(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator).startswith("triton.jit") for decorator in node.decorator_list)


Change = Callable[[Draft], bool]
OPERATORS: dict[str, Change] = {}
FAMILY: dict[str, str] = {}


def operator(family: str) -> Callable[[Change], Change]:
    """Registers an operator under its function's name."""

    def register(change: Change) -> Change:
        OPERATORS[change.__name__], FAMILY[change.__name__] = change, family
        return change

    return register


def mutate(source: str, task: str, name: str, seed: int) -> str | None:
    """A mutant's source, or None where the operator finds no place. The same arguments make the same mutant."""
    draft = Draft(ast.parse(source), ast.parse(task), random.Random(f"{name} {seed}"))
    before = ast.dump(draft.tree)
    if not OPERATORS[name](draft) or ast.dump(draft.tree) == before:
        return None
    return ast.unparse(ast.fix_missing_locations(draft.tree)) + "\n"


def keyword(call: ast.Call, name: str) -> ast.keyword | None:
    return next((entry for entry in call.keywords if entry.arg == name), None)


def additions(draft: Draft) -> list[ast.BinOp]:
    """Sums and differences of values in kernels, those of addresses and of loop counters excepted."""
    addresses = {id(node) for call in draft.calls("load", "store", "atomic_add") for node in ast.walk(call.args[0])}
    found = [n for n in draft.in_kernels(ast.BinOp) if isinstance(n.op, (ast.Add, ast.Sub)) and id(n) not in addresses]
    return [n for n in found if "arange" not in ast.unparse(n) and "program_id" not in ast.unparse(n)]


def loops(draft: Draft) -> list[ast.Call]:
    """The `range(...)` of the loops in kernels."""
    found = [node.iter for node in draft.in_kernels(ast.For)]
    return [call for call in found if isinstance(call, ast.Call) and ast.unparse(call.func) in ("range", "tl.range")]


def bounds(call: ast.Call) -> tuple[str, str, str]:
    """First, last and step of a range."""
    texts = [ast.unparse(argument) for argument in call.args]
    return ("0", texts[0], "1") if len(texts) == 1 else (*texts, "1")[:3]  # type: ignore[return-value]


def masks(draft: Draft, *names: str) -> Iterator[ast.keyword]:
    for call in draft.calls(*names):
        if mask := keyword(call, "mask"):
            yield mask


def rebuilt(draft: Draft, call: ast.Call, **values: str) -> bool:
    """The call with other keywords; a value of "" takes the keyword away."""
    new = copy.deepcopy(call)
    new.keywords = [entry for entry in new.keywords if entry.arg not in values]
    new.keywords += [ast.keyword(name, ast.parse(text, mode="eval").body) for name, text in values.items() if text]
    text = ast.unparse(new)
    return draft.replace(call, lambda _: text)
