"""The forward of a reference: from nodes to statements."""

from __future__ import annotations

import ast
import random
import re
from dataclasses import replace
from typing import Any

from drkernel.tasks.generators.graphs.graph import Graph
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.op import Op, Spelling
from drkernel.tasks.generators.graphs.ops import OPS
from drkernel.tasks.generators.graphs.source.blocks import CLASS_NAMES, part
from drkernel.tasks.generators.graphs.source.constructor import PLACEHOLDER, Constructor, literal
from drkernel.tasks.generators.graphs.source.docs import comment
from drkernel.tasks.generators.graphs.source.names import KEPT, PARTS, Names
from drkernel.tasks.generators.graphs.source.style import Style

OPERANDS = ("x", "y", "z", "w")
NAME = "<name>"
"""Stands for the name of a class in its text."""
_DIMS = ("dim", "dims", "dim0", "dim1")
_PEEKS = ("b", "n", "c", "d", "batch", "s", "num", "total")
_LOCALS = ("e", "rms", "scale", "mean", "norm", "att", "mask", "torch", "nn", "F", "math", "self")
"""What forwards call things without asking."""


class Body:
    """Writes one forward; see `statements`."""

    def __init__(
        self,
        graph: Graph,
        inputs: dict[str, str],
        made: Constructor,
        style: Style,
        rng: random.Random,
        blocks: list[list[Node]] | None = None,
    ):
        self._blocks, self._seed, self._classes = (
            blocks or [],
            rng.random() if blocks else 0.0,
            Names(rng, style.invented, "class"),
        )
        self._graph, self._made, self._style, self._rng = graph, made, style, rng
        self._text: dict[str, str] = dict(inputs)
        """The expression of each value that is known."""
        self._names = Names(rng, style.invented)
        self._names.reserve(*inputs.values(), *_LOCALS)
        self._main = next(iter(inputs.values()))
        self._uses = {value: self._count(value) for value in graph.values}
        self._lines: list[str] = []
        self._spellings = {node.id: self._choose(node) for node in graph.nodes}

    def statements(self) -> list[str]:
        """The statements, the last of which returns."""
        groups = self._groups()
        for place, group in enumerate(groups):
            self._write(group, last=place == len(groups) - 1)
        outputs = ", ".join(self._text[value] for value in self._graph.outputs)
        return [
            _named_library(line, self._style.library) for line in [*self._peeks(), *self._lines, f"return {outputs}"]
        ]

    def _peeks(self) -> list[str]:
        """Statements that look at the first input's sizes, which nobody needs."""
        rank, style = len(self._graph.inputs[0].shape), self._style
        if style.flow == "nested" or self._rng.random() > style.noise or not rank:
            return []
        if self._rng.random() < 0.5:
            places = self._rng.randrange(rank)
            return [
                f"{self._names.of(_PEEKS)} = {self._main}.{self._rng.choice((f'size({places})', f'shape[{places}]'))}"
            ]
        names = [self._names.of(_PEEKS) for _ in range(rank)]
        return [f"{', '.join(names)}{',' * (rank == 1)} = {self._main}.{self._rng.choice(('shape', 'size()'))}"]

    def _count(self, value: str) -> int:
        return sum(node.inputs.count(value) for node in self._graph.nodes) + self._graph.outputs.count(value)

    def _choose(self, node: Node) -> Spelling:
        fitting = [spelling for spelling in OPS[node.op].spellings if spelling.fits(node.attributes)]
        assert fitting, f"{node.op} with {node.attributes} has no spelling"
        styles = sorted({spelling.style for spelling in fitting})
        style = self._rng.choices(styles, [self._style.weights[style] for style in styles])[0]
        return self._rng.choice([spelling for spelling in fitting if spelling.style == style])

    def _groups(self) -> list[list[Node]]:
        """Nodes one by one; those that one class or one nn.Sequential holds together."""
        groups: list[list[Node]] = []
        starts = {block[0].id: block for block in self._blocks}
        inside = {node.id for block in self._blocks for node in block}
        for node in self._graph.nodes:
            before = groups[-1][-1] if groups else None
            if node.id in inside:
                groups += [starts[node.id]] if node.id in starts else []
            elif before and before.id not in inside and self._style.sequential and self._continues(before, node):
                groups[-1] = [*groups[-1], node]
            else:
                groups.append([node])
        return groups

    def _continues(self, before: Node, node: Node) -> bool:
        modules = all(
            self._spellings[n.id].style == "module" and len(n.inputs) == 1 and not OPS[n.op].several
            for n in (before, node)
        )
        return modules and node.inputs == (before.id,) and self._uses[before.id] == 1

    def _unpacks(self, node: Node) -> bool:
        """Writes all parts of a value as one statement (`a, b = x.chunk(2)`), where all are needed."""
        value, number = node.inputs[0], node.attributes.get("chunks")
        parts = [other for other in self._graph.users(value) if _of_parts(other) == _of_parts(node)]
        if node.op != "chunk" or len(parts) != number or self._style.flow == "nested":
            return False
        if node is parts[0]:
            template = self._spellings[node.id].text.removesuffix("[{index}]")
            expression = self._filled(node, OPS["chunk"], template, {"x": self._text[value]}, True)
            self._keep([value] * number)
            self._uses[value] -= number
            for part_, name in zip(parts, self._rng.choice(PARTS[number]), strict=True):
                self._text[part_.id] = self._names.of([name])
            self._lines.append(f"{', '.join(self._text[part_.id] for part_ in parts)} = {expression}")
        return True

    def _write(self, group: list[Node], last: bool) -> None:
        head, tail = group[0], group[-1]
        if len(group) == 1 and self._unpacks(head):
            return
        inside = {node.id for node in group}
        read = [value for node in group for value in node.inputs if value not in inside]
        texts = [self._text[value] for value in read]
        if self._style.flow != "nested" and self._rng.random() < self._style.comments:
            self._lines.append(comment(head, self._graph.nodes.index(head), self._rng))
        self._keep(read)
        if group in self._blocks:
            expression = f"self.{self._block(group)}({texts[0]})"
        elif len(group) > 1:
            members = [(node, self._constructed(node)) for node in group]
            expression = f"self.{self._made.sequence(members)}({texts[0]})"
        else:
            expression = self._spelled(head, texts)
        for value in read:
            self._uses[value] -= 1
        self._assign(tail, expression, last)

    def _block(self, nodes: list[Node]) -> str:
        """Adds the class of a block and a module of it; returns its attribute."""
        graph, value = part(self._graph, nodes)
        rng = random.Random(self._seed)
        style = replace(self._style, comments=0.0, sequential=False, spelled_out=False, noise=0.0)
        made, name = Constructor(self._made.constants, rng, style), Names(rng, style.invented).of(("x", "x", "inp"))
        body = Body(graph, {value: name}, made, style, rng).statements()
        call = style.super_call.replace("Model", NAME)
        lines = [f"class {NAME}(nn.Module):", f"    def __init__({', '.join(['self', *made.arguments])}):"]
        lines += [f"        {line}" for line in (call, *made.lines)]
        lines += ["", f"    def forward(self, {name}):", *(f"        {line}" for line in body)]
        name = self._classes.of(CLASS_NAMES)
        given = [self._made.size(self._graph.sizes[made.sized[argument]]) for argument in made.arguments]
        return self._made.block("\n".join(lines), made, name, ", ".join(given))

    def _spelled(self, node: Node, texts: list[str]) -> str:
        """The expression of a node; statements before it are added."""
        op, spelling = OPS[node.op], self._spellings[node.id]
        if spelling.style == "module":
            call = f"self.{self._made.module(node, op, self._constructed(node))}({', '.join(texts)})"
            return call + "[0]" * op.several
        operands = dict(zip(OPERANDS, texts, strict=False))
        *before, expression = [self._filled(node, op, line, operands, True) for line in spelling.text.split("\n")]
        self._lines += before
        return expression

    def _constructed(self, node: Node) -> str:
        return self._filled(node, OPS[node.op], self._spellings[node.id].text, {}, False)

    def _filled(self, node: Node, op: Op, template: str, operands: dict[str, str], forward: bool) -> str:
        """The template with its placeholders filled in."""

        def fill(found: re.Match[str]) -> str:
            name, keyword = found[1], found[2]
            if name in operands:
                return _operand(operands[name], template, found)
            if forward and not keyword and name in node.roles:
                return self._made.parameter(node, op, next(p for p in node.parameters if p.role == name))
            if not keyword:
                return self._attribute(node, op, name, forward)
            if node.attributes[name] == op.defaults.get(name):
                argument = self._made.default(node, op, name) if self._style.spelled_out and not forward else ""
                return f", {name}={argument}" if argument else ""
            return f", {name}={self._attribute(node, op, name, forward)}"

        return PLACEHOLDER.sub(fill, template)

    def _attribute(self, node: Node, op: Op, name: str, forward: bool) -> str:
        value: Any = node.attributes[name]
        if name == "index" and isinstance(value, str):
            return value
        text = self._dims(value, len(self._graph.shape(node.inputs[0]))) if name in _DIMS else ""
        if forward:
            return self._made.held(node, op, name, text)
        return self._made.attribute(node, op, name, text)

    def _dims(self, value: Any, rank: int) -> str:
        """Dimensions, counted from the front or from the end."""
        shift = rank if self._style.negative else 0
        if isinstance(value, int):
            return str(value - shift)
        if len(value) == 1:
            return str(value[0] - shift)
        dims = tuple(dim - shift for dim in value)
        return str(list(dims)) if self._style.lists else literal(dims)

    def _keep(self, read: list[str]) -> None:
        """Names a value that is needed again later, before the variable that holds it is assigned anew."""
        value = read[0]
        kept = self._style.flow == "reassign" and self._text[value] == self._main
        if kept and self._uses[value] > read.count(value):
            name = self._names.of(KEPT)
            self._lines.append(f"{name} = {self._text[value]}")
            self._text[value] = name

    def _assign(self, node: Node, expression: str, last: bool) -> None:
        """Leaves the value in a variable, or as an expression where its only user can hold it."""
        users = self._graph.users(node.id)
        inline = self._uses[node.id] == 1 and (
            (last and self._style.returns) or (self._style.flow == "nested" and self._inlines(node, users))
        )
        if inline:
            self._text[node.id] = expression
            return
        name = (
            self._main if self._style.flow == "reassign" and self._main_is_free() else self._names.of(self._style.fresh)
        )
        self._lines.append(f"{name} = {expression}")
        self._text[node.id] = name

    def _inlines(self, node: Node, users: list[Node]) -> bool:
        """Whether the only user of a value names it once, and comes next."""
        if not users or users[0] is not self._graph.nodes[self._graph.nodes.index(node) + 1]:
            return False
        spelling, place = self._spellings[users[0].id], users[0].inputs.index(node.id)
        named = spelling.text.count(f"{{{OPERANDS[place]}}}")
        return spelling.style == "module" or (named == 1 and "\n" not in spelling.text)

    def _main_is_free(self) -> bool:
        """Whether no value that is needed again is in the main variable."""
        return not any(text == self._main and self._uses[value] > 0 for value, text in self._text.items())


def _named_library(line: str, name: str) -> str:
    """The line with another name for `torch.nn.functional`."""
    return re.sub(r"(?<![\w.])F\.", name, line)


def _of_parts(node: Node) -> tuple:
    """What the parts of a value have in common."""
    attributes = node.attributes
    return (node.op, node.inputs[0], attributes.get("chunks"), attributes.get("dim"))


def _operand(text: str, template: str, found: re.Match[str]) -> str:
    """An operand, in parentheses where it does not bind tightly and is no whole argument."""
    before, after = template[: found.start()], template[found.end() :]
    whole = re.search(r"[(,]\s*$", before) and re.match(r"\s*[,)]", after)
    call = re.search(r"\w\($|,\s*$", before)
    bare = isinstance(ast.parse(text, mode="eval").body, (ast.Name, ast.Call, ast.Attribute, ast.Subscript))
    return text if bare or (whole and call) else f"({text})"
