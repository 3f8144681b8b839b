"""Operators on elements: from nodes to lines on `v` and `u`.

`Chain` follows the nodes of one kernel. The value of the last node is in `v`; values that are needed later have
variables of their own (`k0`, `k1`, ...); all others are loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from drkernel.coldstart.answers.context import Context, Host
from drkernel.coldstart.answers.draft import Draft
from drkernel.coldstart.answers.leaves import LEAVES
from drkernel.coldstart.answers.sites import Site, offset, parts
from drkernel.tasks.generators.graphs.dims import Dim, Shape, as_dim
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.ops import OPS

RESHAPES = ("flatten", "unsqueeze", "squeeze", "dropout")
"""Operators that change no element and no element's number."""
_LONG = 32
"""Characters of a formula that may be a function of its own."""
HINTS = {"weight": "w", "bias": "b", "running_mean": "mean", "running_var": "var", "value": "p"}


class Chain:
    """Writes the element-wise nodes of a kernel, in the order of computation."""

    def __init__(self, context: Context, host: Host, draft: Draft, nodes: Sequence[Node]):
        self._context, self._host, self._draft = context, host, draft
        self._nodes = {node.id: node for node in nodes}
        self._order = [node.id for node in nodes]
        self.current = ""
        self._kept: dict[str, str] = {}

    def restart(self) -> None:
        """Forgets all values: another pass over the elements begins."""
        self.current = ""
        self._kept = {}

    def load(self, host: str, shape: Shape, site: Site, hint: str = "") -> str:
        """The expression that loads an element's partner in a tensor of the host."""
        place = offset(site, shape, self._draft.size)
        pointer = self._draft.pointer(host, hint)
        return self.load_at(pointer, place, site.mask(place))

    def load_at(self, pointer: str, place: str, mask: str) -> str:
        address = pointer if place == "0" else f"{pointer} + {place}"
        text = f"tl.load({address}, mask={mask})" if mask else f"tl.load({address})"
        return f"{text}.to(tl.float32)" if self._draft.narrow else text

    def place(self, value: str, site: Site) -> None:
        """Leaves a value in `v`."""
        if value == self.current:
            return
        self._draft.add(f"v = {self._text(value, site)}")
        self.current = value
        if value not in self._kept and self._later(value) > 1:
            self._keep(value)

    def _text(self, value: str, site: Site) -> str:
        """The expression of a value that is not in `v`."""
        if value in self._kept:
            return self._kept[value]
        assert value not in self._nodes, f"{value} was not kept"
        return self.load(self._host.variables[value], self._host.shape(value), site)

    def _later(self, value: str) -> int:
        """How many nodes of the kernel read a value."""
        return sum(node.inputs.count(value) for node in self._nodes.values())

    def _keep(self, value: str) -> None:
        name = f"k{len(self._kept)}"
        self._draft.add(f"{name} = v")
        self._kept[value] = name

    def node(self, node: Node, site: Site) -> None:
        """Computes a node into `v`."""
        first = len(self._draft.lines)
        self._compute(node, site)
        self._draft.marks.append((node, first, len(self._draft.lines)))
        self.done(node)

    def _compute(self, node: Node, site: Site) -> None:
        if node.op in LEAVES:
            LEAVES[node.op](self, self._draft, self._host, node, site)
        elif node.op in RESHAPES:
            self.place(node.inputs[0], replace(site, shape=self._host.shape(node.inputs[0])))
        elif len(node.inputs) > 1:
            self._two(node, site)
        else:
            self.place(node.inputs[0], site)
            self._draft.add(*self._helped(node, lines_of(self, self._context, self._host, node, site)))

    def _helped(self, node: Node, lines: list[str]) -> list[str]:
        """The lines, or a call of a function that has them."""
        alone = OPS[node.op].kind == "pointwise" and sum(map(len, lines)) > _LONG
        if not (self._draft.style.helpers and alone):
            return lines
        body = [f"    {line}" for line in lines]
        body = [*body[:-1], body[-1].replace("v = ", "return ", 1)]
        self._draft.functions[node.op] = ["@triton.jit", f"def {node.op}(v):", *body]
        return [f"v = {node.op}(v)"]

    def done(self, node: Node) -> None:
        """The node's value is in `v`."""
        self.current = node.id
        after = self._order[self._order.index(node.id) + 1 :]
        readers = [reader for reader in self._nodes.values() if node.id in reader.inputs]
        if readers and ([reader.id for reader in readers] != after[:1]):
            self._keep(node.id)

    def _two(self, node: Node, site: Site) -> None:
        first, second = node.inputs[:2]
        if node.op in ("outer", "diagonal_matmul"):
            column = (*self._host.shape(first), as_dim(1))
            self._draft.add(f"v = {self.load(self._host.variables[first], column, site)}")
            self._draft.add(f"u = {self._text(second, site)}", "v = v * u")
            return
        if second == self.current and OPS[node.op].inputs_alike:
            first, second = second, first
        lines = filled(node, OPS[node.op].triton)
        if first == second:
            self.place(first, site)
            self._draft.add("u = v")
        elif second == self.current:
            self._draft.add("u = v")
            self.place(first, site)
        else:
            self.place(first, site)
            text = self._text(second, site)
            if text.isidentifier():
                lines = [re.sub(r"\bu\b", text, line) for line in lines]
            else:
                self._draft.add(f"u = {text}")
        self._draft.add(*lines)

    def second(self, value: str, site: Site) -> str:
        """The expression of a second operand."""
        return self._text(value, site)

    def parameter(self, node: Node, role: str, site: Site, shape: Sequence[Dim] | None = None) -> str:
        """The expression that loads an element's parameter."""
        found = next(p for p in node.parameters if p.role == role)
        own = tuple(shape) if shape is not None else self._host.parameter_shape(node, found)
        return self.load(self._context.attribute(node, role), own, site, HINTS[role])


def filled(node: Node, lines: Sequence[str]) -> list[str]:
    """Lines with the node's constants."""
    return [re.sub(r"\{(\w+)\}", lambda m: repr(node.attributes[m[1]]), line) for line in lines]


def channel_shape(shape: Shape) -> Shape:
    """The shape of one value per channel of `shape`, for broadcasting."""
    return (shape[1], *(as_dim(1),) * (len(shape) - 2))


def lines_of(chain: Chain, context: Context, host: Host, node: Node, site: Site) -> list[str]:
    """The lines of a node of one input, which is in `v`."""
    op = OPS[node.op]
    if op.name.startswith("batch_norm"):
        return _batch_norm(chain, host, node, site)
    if op.kind == "positional":
        _, row, column = ["", *parts(site.index, site.shape, chain._draft.size)][-3:]
        return [f"r, c = {row}, {column}", *op.triton]
    if op.kind == "binary":
        shape = host.sizes.of(node.attributes["shape"])
        return [f"u = {chain.parameter(node, node.roles[0], site, shape)}", *filled(node, op.triton)]
    return filled(node, op.triton)


def _batch_norm(chain: Chain, host: Host, node: Node, site: Site) -> list[str]:
    """With running statistics: a scale and a shift per channel."""
    shape = channel_shape(host.shape(node.inputs[0]))
    load: Callable[[str], str] = lambda role: chain.parameter(node, role, site, shape)
    scaled = f"v = (v - {load('running_mean')}) / tl.sqrt({load('running_var')} + {node.attributes['eps']})"
    return [scaled, *([f"v = v * {load('weight')} + {load('bias')}"] if "weight" in node.roles else [])]
