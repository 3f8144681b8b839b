"""A task as a graph of operators, from which the reference and its answers are written.

    Graph.sizes       the named sizes; every shape is a tuple of `Dim`, an expression over them
    Graph.inputs      what `get_inputs` makes and `forward` takes, in order (`nodes.Input`)
    Graph.nodes       the operators in the order of computation (`nodes.Node`); each makes one value
    Graph.outputs     ids of the values that `forward` returns: one, or several for a tuple

A value is named by its id: `x`, `y`, ... for inputs, `n0`, `n1`, ... for what nodes make. `Graph.shape(id)` and
`Graph.dtype(id)` tell of each; a shape's `[dim.full for dim in shape]` are the published sizes and `dim.small` those on
the simulated device. `Graph.users(id)` are the nodes that read a value.

A node's operator is `OPS[node.op]` (`op.Op`): its `kind` says which kernel computes it, and `triton`, `fold` and
`finish` are the lines of that kernel. `node.attributes` is complete, with defaults and derived sizes, and dims in
it are counted from the front. `node.parameters` are the tensors that the reference owns for it; the key of one
is `<node id>.<role>`, e.g. `n1.weight`.

    graph = from_json(task.info["graph"])
    outputs = evaluate(graph, inputs, parameters)       # what any right answer returns
    order = [OPS[node.op].kind for node in graph.nodes]

`task.info["parameters"]` maps each key to the attribute of the reference that holds it (`n1.weight` ->
`conv.weight`), `task.info["names"]` each size to the module constant (`batch` -> `batch_size`), and
`task.info["buffers"]` numbers to the attributes that hold them (`n2.value` -> `scale`). `task.info["init"]` has the
text of the reference's constructor, which an answer may repeat to own the same parameters: `signature`, `lines`, and
`classes`, the lines of further classes that the constructor needs (mostly none).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from drkernel.tasks.generators.graphs.dims import Dim, Shape, as_dim, parse
from drkernel.tasks.generators.graphs.nodes import Attribute, Distribution, Input, Node, Parameter
from drkernel.tasks.generators.graphs.ops import OPS
from drkernel.tasks.generators.operators.operator import State

__all__ = ["Builder", "Dim", "Graph", "Input", "Node", "Parameter", "State", "evaluate", "from_json", "to_json"]


@dataclass(frozen=True)
class Graph:
    """See the top of this file."""

    dtype: str
    """Of inputs, parameters and values: float32, float16 or bfloat16."""
    sizes: Mapping[str, Dim]
    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]

    @property
    def composition(self) -> tuple[str, ...]:
        """The names of the operators, in order."""
        return tuple(node.op for node in self.nodes)

    @property
    def values(self) -> dict[str, Input | Node]:
        """Inputs and nodes by id."""
        return {**{value.name: value for value in self.inputs}, **{node.id: node for node in self.nodes}}

    def shape(self, value: str) -> Shape:
        return self.values[value].shape

    def dtype_of(self, value: str) -> str:
        return self.values[value].dtype

    def users(self, value: str) -> list[Node]:
        """The nodes that read a value, in order; one that reads it twice is there once."""
        return [node for node in self.nodes if value in node.inputs]

    def constants(self, small: bool = False) -> dict[str, int]:
        """Sizes by name."""
        return {name: dim.small if small else dim.full for name, dim in self.sizes.items()}


class Builder:
    """Builds a graph from its first input to its last node.

    >>> build = Builder()
    >>> x = build.input("x", (build.size("rows", 4096, 9), build.size("cols", 1024, 33)))
    >>> graph = build.graph(build.node("sum", build.node("relu", x), dims=(1,)))
    >>> graph.composition, graph.shape("n1")
    (('relu', 'sum'), (rows,))
    """

    def __init__(self, dtype: str = "float32"):
        self.dtype = dtype
        self.sizes: dict[str, Dim] = {}
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self._values: dict[str, Input | Node] = {}

    def size(self, name: str, full: int, small: int) -> Dim:
        """A new named size."""
        assert name not in self.sizes, f"size {name!r} is there twice"
        self.sizes[name] = Dim(name, full, small)
        return self.sizes[name]

    def input(
        self,
        name: str,
        shape: Sequence[Dim | int],
        distribution: Distribution = "randn",
        dtype: str | None = None,
        high: Dim | None = None,
    ) -> str:
        """A new input; returns its id."""
        value = Input(name, tuple(as_dim(dim) for dim in shape), dtype or self.dtype, distribution, high)
        self.inputs.append(value)
        self._values[name] = value
        return name

    def node(self, op: str, *inputs: str, **attributes: Attribute) -> str:
        """A new node; returns its id. Shapes that do not fit are an assertion of the operator."""
        entry = OPS[op]
        shapes = [self.shape(value) for value in inputs]
        complete = entry.complete(shapes, attributes)
        made = Node(
            id=f"n{len(self.nodes)}",
            op=op,
            inputs=inputs,
            attributes=complete,
            parameters=entry.parameters(shapes, complete) if entry.parameters else (),
            shape=entry.infer(shapes, complete),
            dtype=entry.output or (self.dtype if entry.kind == "gather" else self.dtype_of(inputs[0])),
            state=entry.state_after(self.state(inputs[0]), complete),
        )
        self.nodes.append(made)
        self._values[made.id] = made
        return made.id

    def shape(self, value: str) -> Shape:
        return self._values[value].shape

    def dtype_of(self, value: str) -> str:
        return self._values[value].dtype

    def values(self) -> list[str]:
        """The ids of all values so far."""
        return list(self._values)

    def drop_input(self) -> None:
        """Takes back the last input, which no node may read."""
        name = self.inputs.pop().name
        assert all(name not in node.inputs for node in self.nodes), f"input {name!r} is read"
        del self._values[name]

    def state(self, value: str) -> State:
        """What is known of a value."""
        found = self._values[value]
        return found.state if isinstance(found, Node) else _STATES.get(found.distribution, State())

    def graph(self, *outputs: str) -> Graph:
        """The graph that has been built."""
        return Graph(self.dtype, dict(self.sizes), tuple(self.inputs), tuple(self.nodes), outputs)


def pruned(graph: Graph) -> Graph:
    """The graph without nodes that no output needs."""
    needed = set(graph.outputs)
    for node in reversed(graph.nodes):
        needed |= set(node.inputs) if node.id in needed else set()
    build = Builder(graph.dtype)
    build.sizes = dict(graph.sizes)
    for value in graph.inputs:
        build.input(value.name, value.shape, value.distribution, value.dtype, value.high)
    names = {value.name: value.name for value in graph.inputs}
    for node in graph.nodes:
        if node.id in needed:
            names[node.id] = build.node(node.op, *(names[value] for value in node.inputs), **node.attributes)
    return build.graph(*(names[value] for value in graph.outputs))


_STATES = {
    "rand": State(signed=False, bounded=True),
    "near_one": State(signed=False, bounded=True),
    "probabilities": State(signed=False, bounded=True),
    "sign": State(bounded=True),
}
"""Of inputs that are not normally distributed."""


def evaluate(
    graph: Graph,
    inputs: Sequence[Tensor],
    parameters: Mapping[str, Tensor],
    sizes: Mapping[str, int] | None = None,
) -> tuple[Tensor, ...]:
    """The outputs, computed operator by operator in PyTorch.

    Args:
        inputs: in the order of `graph.inputs`.
        parameters: by key, `<node id>.<role>`.
        sizes: values of the named sizes; None: the small ones.
    """
    sizes = graph.constants(small=True) if sizes is None else sizes
    values = dict(zip((value.name for value in graph.inputs), inputs, strict=True))
    for node in graph.nodes:
        own = {role: parameters[f"{node.id}.{role}"] for role in node.roles}
        attributes = {name: _number(value, sizes) for name, value in node.attributes.items()}
        values[node.id] = OPS[node.op].eager([values[value] for value in node.inputs], own, attributes)
    return tuple(values[value] for value in graph.outputs)


def to_json(graph: Graph) -> dict[str, Any]:
    """The graph as JSON values."""
    return {
        "dtype": graph.dtype,
        "sizes": [[name, dim.full, dim.small] for name, dim in graph.sizes.items()],
        "inputs": [
            [x.name, [dim.text for dim in x.shape], x.distribution, x.dtype, x.high.text if x.high else None]
            for x in graph.inputs
        ],
        "nodes": [
            [node.op, list(node.inputs), {name: _packed(value) for name, value in node.attributes.items()}]
            for node in graph.nodes
        ],
        "outputs": list(graph.outputs),
    }


def from_json(data: Mapping[str, Any]) -> Graph:
    """The graph that `to_json` made."""
    build = Builder(data["dtype"])
    for name, full, small in data["sizes"]:
        build.size(name, full, small)
    for name, shape, distribution, dtype, high in data["inputs"]:
        bound = parse(high, build.sizes) if high else None
        build.input(name, [parse(dim, build.sizes) for dim in shape], distribution, dtype, bound)
    for op, inputs, attributes in data["nodes"]:
        build.node(op, *inputs, **{name: _unpacked(value, build.sizes) for name, value in attributes.items()})
    return build.graph(*data["outputs"])


def _number(value: Any, sizes: Mapping[str, int]) -> Any:
    """An attribute with sizes as ints."""
    if isinstance(value, Dim):
        return value.at(sizes)
    return tuple(_number(part, sizes) for part in value) if isinstance(value, tuple) else value


def _packed(value: Any) -> Any:
    if isinstance(value, Dim):
        return {"size": value.text}
    return [_packed(part) for part in value] if isinstance(value, tuple) else value


def _unpacked(value: Any, sizes: Mapping[str, Dim]) -> Any:
    if isinstance(value, dict):
        return parse(value["size"], sizes)
    return tuple(_unpacked(part, sizes) for part in value) if isinstance(value, list) else value
