"""Sizes in host code: graph dimensions as names of what a tensor's shape is unpacked into.

    B, C, H, W = x.shape

Dimensions that follow from others (of a pool's output) become statements of their own: `OH = (H - 2) // 2 + 1`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from drkernel.tasks.generators.graphs.dims import Dim, Shape, as_dim, is_one, names_in
from drkernel.tasks.generators.graphs.graph import Graph
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.ops import OPS

LETTERS = {1: "N", 2: "MN", 3: "BMN", 4: "BCHW", 5: "BCDHW"}
_MORE = "GLPQEKRUV"
_PRODUCT = re.compile(r"[A-Z]+\d*( \* [A-Z]+\d*)*")


class Sizes:
    """The sizes that one kernel's host code knows."""

    def __init__(self, graph: Graph, reserved: Sequence[str] = ()):
        self._graph, self._reserved = graph, set(reserved)
        self._known: dict[str, Dim] = {}
        self._shapes: dict[str, Shape] = {}
        self._unpacked: list[tuple[str, list[str]]] = []
        self._derived: dict[str, str] = {}
        self._ranks: set[str] = set()
        """Tensors of which `_unpacked` has all dimensions."""

    def bind(self, variable: str, value: str, shape: Shape) -> None:
        """Makes the dimensions of a tensor in a host variable known."""
        names = []
        for letter, dim in zip(LETTERS[len(shape)], shape, strict=True) if shape else ():
            if dim.is_number:
                names.append("_")
                continue
            taken = {known.text for known in self._known.values()} | set(names) | self._reserved
            new = dim.text not in self._known
            name = next(n for n in (letter, *_MORE) if n not in taken) if new else "_"
            names.append(name)
            if new:
                self._known[dim.text] = Dim(name, dim.full, dim.small)
        self._ranks.add(variable)
        self._unpacked.append((variable, names))
        self._shapes[value] = self.of(shape)

    def separate(self, variable: str, place: int, dim: Dim, others: Sequence[Dim]) -> Dim:
        """A name of its own for one dimension of a tensor where it has that of another size, which only happens to be
        as large: the sides of a square matrix."""
        if dim.is_number or dim.text not in {other.text for other in others}:
            return dim
        taken = {known.text for known in self._known.values()} | self._reserved
        taken |= {name for _, names in self._unpacked for name in names}
        found = next((names for text, names in self._unpacked if text == variable), None)
        name = next(n for n in _MORE if n not in taken)
        if found is None:
            found = ["_"] * (place + 1)
            self._unpacked.append((variable, found))
        found += ["_"] * (place + 1 - len(found))
        found[place] = name
        return Dim(name, dim.full, dim.small)

    def formula(self, name: str, text: str, dim: Dim) -> Dim:
        """A size that a statement of its own computes."""
        self._derived[name] = text
        return Dim(name, dim.full, dim.small)

    def set_shape(self, nodes: Sequence[Node], shape: Shape) -> None:
        """Says the shape of a node's value, and of those behind it that have the same."""
        own = [dim.text for dim in self._graph.shape(nodes[0].id)]
        for node in nodes:
            if [dim.text for dim in self._graph.shape(node.id)] == own:
                self._shapes[node.id] = shape

    def knows(self, dim: Dim) -> bool:
        return dim.is_number or dim.text in self._known

    def of(self, shape: Sequence[Dim]) -> Shape:
        """A shape of the graph in host names.

        Raises:
            KeyError: a dimension is not known.
        """
        return tuple(dim if dim.is_number else self._known[dim.text] for dim in shape)

    def shape(self, value: str) -> Shape:
        """The shape of a value, over host names."""
        if value not in self._shapes:
            self._shapes[value] = self._infer(value)
        return self._shapes[value]

    def _infer(self, value: str) -> Shape:
        shape = self._graph.shape(value)
        if all(dim.is_number or dim.text in self._known for dim in shape):
            return self.of(shape)
        node = self._graph.values[value]
        assert isinstance(node, Node), f"the shape of input {value} is not bound"
        attributes = {name: self._attribute(found) for name, found in node.attributes.items()}
        shapes, op = [self.shape(x) for x in node.inputs], OPS[node.op]
        inferred = op.infer(shapes, op.complete(shapes, attributes))
        for dim, host in zip(shape, inferred, strict=True):
            if not dim.is_number and dim.text not in self._known:
                self._known[dim.text] = self._named(host)
        return self.of(shape)

    def _attribute(self, value):  # type: ignore[no-untyped-def]
        if isinstance(value, Dim):
            return value if value.is_number else self._known.get(value.text, value)
        return tuple(map(self._attribute, value)) if isinstance(value, tuple) else value

    def _named(self, dim: Dim) -> Dim:
        """A host name for a derived size."""
        if _PRODUCT.fullmatch(dim.text):
            return dim
        name = "O" + (names_in(dim.text) or ["S"])[0]
        while name in self._derived:
            name += "2"
        self._derived[name] = dim.text
        return Dim(name, dim.full, dim.small)

    def statements(self, used: str) -> list[str]:
        """Statements that define those sizes that occur in a text."""
        lines: list[str] = []
        names = set(re.findall(r"[A-Za-z_]\w*", used))
        for name, text in reversed(self._derived.items()):
            if name in names:
                lines.insert(0, f"{name} = {text}")
                names |= set(names_in(text))
        unpack = []
        for variable, found in self._unpacked:
            wanted = [name if name in names else "_" for name in found]
            places = [place for place, name in enumerate(wanted) if name != "_"]
            rank = len(wanted) if variable in self._ranks else 0
            if not rank or (len(places) == 1 and rank > 1):
                unpack += [f"{wanted[place]} = {variable}.shape[{place}]" for place in places]
            elif places:
                unpack.append(f"{', '.join(wanted)}{',' * (len(wanted) == 1)} = {variable}.shape")
        return unpack + lines


def product(shape: Sequence[Dim]) -> Dim:
    """The number of elements; ones are left out."""
    total = as_dim(1)
    for dim in shape:
        total = total * dim
    return total


def short(dim: Dim) -> str:
    """A name for a size as a kernel's parameter: `HW` for `H * W`; empty where the text gives none."""
    return dim.text.replace(" * ", "") if _PRODUCT.fullmatch(dim.text) else ""


__all__ = ["Sizes", "is_one", "product", "short"]
