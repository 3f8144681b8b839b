"""What a graph costs: products, and elements that move. Graphs that are too large or too small are drawn again."""

from __future__ import annotations

from drkernel.tasks.generators.graphs.dims import count
from drkernel.tasks.generators.graphs.graph import Graph
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.ops import OPS

MOST_ELEMENTS = 2**28
"""Of any value as published: 1 GiB in fp32."""
LEAST_ELEMENTS = 2**22
"""Of all inputs and outputs together, where there is no product: less time than launching takes is not measured."""
MOST_OPERATIONS, LEAST_OPERATIONS = 6e11, 1e9
"""Multiplications and additions of products: 10 ms of an H100 in fp32."""
MOST_SMALL, MOST_SMALL_OPERATIONS = 40_000, 1e7
"""Elements of all values at small sizes, and operations: what an interpreter takes."""
MOST_WEIGHTS = 2**28


def operations(graph: Graph, small: bool = False) -> float:
    """Multiplications and additions of all products, convolutions and attentions."""
    return sum(_operations(graph, node, small) for node in graph.nodes)


def _operations(graph: Graph, node: Node, small: bool) -> float:
    out = count(node.shape, small)
    kind, shapes = OPS[node.op].kind, [graph.shape(value) for value in node.inputs]
    size = lambda dim: dim.small if small else dim.full
    if kind == "convolution":
        weight = count(node.parameters[0].shape, small)
        if "transpose" in node.op:
            return 2.0 * count(shapes[0], small) * weight / size(shapes[0][1])
        return 2.0 * out * weight / size(node.shape[1])
    if kind == "product":
        if node.op in ("outer", "diagonal_matmul"):
            return 1.0 * out
        first = shapes[1] if node.op == "addmm" else shapes[0]
        return 2.0 * out * size(first[-2 if node.attributes.get("transpose_x") else -1])
    if node.op == "attention":
        return 4.0 * count(shapes[0], small) * size(shapes[1][-2])
    return 0.0


def fits(graph: Graph) -> bool:
    """Whether a graph suits a GPU as published, and the interpreter at small sizes."""
    values = [value.shape for value in graph.values.values()]
    if any(min(dim.full, dim.small) < 1 for shape in values for dim in shape):  # windows that are longer than a side
        return False
    if max(count(shape) for shape in values) > MOST_ELEMENTS or operations(graph) > MOST_OPERATIONS:
        return False
    if sum(count(p.shape) for node in graph.nodes for p in node.parameters) > MOST_WEIGHTS:
        return False
    moved = sum(count(value.shape) for value in graph.inputs) + sum(count(graph.shape(v)) for v in graph.outputs)
    if moved < LEAST_ELEMENTS and operations(graph) < LEAST_OPERATIONS:
        return False
    small = sum(count(shape, small=True) for shape in values)
    return small <= MOST_SMALL and operations(graph, small=True) <= MOST_SMALL_OPERATIONS
