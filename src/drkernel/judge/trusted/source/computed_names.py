"""Which attributes `getattr(x, NAME)` and `setattr(x, NAME, y)` may mean, where NAME is no literal.

People write f"conv{i}", f"{kind}_proj", "fc{}".format(i), loops over a tuple of names, and f"{name}_l{i}" in such a
loop. Of all but the fourth a start or an end is known, which no forbidden name has. Not of "fc" + x and "fc%d" % x: a
subclass of str may answer as it likes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from drkernel.judge.trusted.source import denylist
from drkernel.tasks.scopes import bound_by

_REFUSED = denylist.ATTRIBUTES | denylist.METHODS | denylist.MODULE_METHODS


_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class LoopNames:
    """Names that a file binds only by loops over literal texts, or a comprehension within itself, with these texts."""

    def __init__(self, tree: ast.Module):
        nodes = list(ast.walk(tree))
        targets: dict[ast.AST, tuple[str, list[str]]] = {}
        for loop in (node for node in nodes if isinstance(node, ast.For | ast.comprehension)):
            if isinstance(loop.target, ast.Name) and (texts := _texts(loop.iter)):
                targets[loop.target] = loop.target.id, texts
        others = {name for node in nodes if node not in targets for name in bound_by(node)}
        others |= {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
        self._texts: dict[str, list[str]] = {}
        for name, texts in targets.values():
            if name not in others:
                self._texts.setdefault(name, []).extend(texts)
        self._within: dict[int, list[str]] = {}
        """The same by the node of a name that is read in a comprehension, whatever the name is elsewhere."""
        for outer in (node for node in nodes if isinstance(node, _COMPREHENSIONS)):
            inside = list(ast.walk(outer))
            for target in (loop.target for loop in outer.generators if loop.target in targets):
                name, texts = targets[target]
                if not any(name in bound_by(node) for node in inside if node is not target):
                    read = (node for node in inside if isinstance(node, ast.Name) and node.id == name)
                    self._within |= {id(node): texts for node in read}

    def of(self, node: ast.expr) -> list[str]:
        """The texts that a literal or a name may stand for; none where that is not known."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return [node.value]
        return self._within.get(id(node)) or self._texts.get(node.id, []) if isinstance(node, ast.Name) else []


def is_harmless(name: ast.expr, loop_names: LoopNames) -> bool:
    """Whether no forbidden attribute starts, or ends, as a computed name does."""
    starts, end = _known_ends(name, loop_names)
    return all(_is_safe(start, str.startswith) for start in starts) or _is_safe(end, str.endswith)


def _texts(node: ast.expr) -> list[str]:
    """The texts of a literal tuple or list; empty for all else."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List) else []
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return texts if len(texts) == len(parts) else []


def _is_safe(text: str, test: Callable[[str, str], bool]) -> bool:
    return bool(text.strip("_")) and not any(test(name, text) for name in _REFUSED)


def _known_ends(name: ast.expr, loop_names: LoopNames) -> tuple[list[str], str]:
    """The texts of which a computed name starts with one, and that with which it ends; empty where none is known."""
    text = lambda node: node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    if isinstance(name, ast.JoinedStr) and name.values:
        first = name.values[0]
        starts = [text(first)]
        if isinstance(first, ast.FormattedValue) and first.conversion == -1 and first.format_spec is None:
            starts = loop_names.of(first.value)
        return starts or [""], text(name.values[-1])
    if isinstance(name, ast.Call) and isinstance(name.func, ast.Attribute) and name.func.attr == "format":
        return [text(name.func.value).partition("{")[0]], ""
    return [""], ""
