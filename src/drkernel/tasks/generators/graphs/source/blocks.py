"""Parts of a network that have one input and one output, so that people write a class for each."""

from __future__ import annotations

import random
from collections.abc import Sequence

from drkernel.tasks.generators.graphs.graph import Graph
from drkernel.tasks.generators.graphs.nodes import Input, Node

CLASS_NAMES = ("Block", "ConvBlock", "Stage", "Layer", "SubModule", "Unit")
_LEAST, _MOST = 3, 9
"""Operators of a block."""


def plan(graph: Graph, rng: random.Random) -> list[list[Node]]:
    """Blocks of a graph, in order; none where it has no such parts."""
    cuts = [place for place in range(-1, len(graph.nodes)) if _is_cut(graph, place)]
    blocks, start = [], cuts[0] if cuts else 0
    while cuts:
        ends = [cut for cut in cuts if _LEAST <= cut - start <= _MOST]
        if not ends:
            break
        end = rng.choice(ends)
        nodes = list(graph.nodes[start + 1 : end + 1])
        if sum(bool(node.parameters) for node in nodes) > 1:
            blocks.append(nodes)
        start = end
    return blocks


def _is_cut(graph: Graph, place: int) -> bool:
    """Whether one value alone is read behind the node at `place` (behind the inputs: -1)."""
    read = {value for node in graph.nodes[place + 1 :] for value in node.inputs} | set(graph.outputs)
    made = {value.name for value in graph.inputs} | {node.id for node in graph.nodes[: place + 1]}
    return len(read & made) == 1


def part(graph: Graph, nodes: Sequence[Node]) -> tuple[Graph, str]:
    """The graph of a block, and the value that it reads."""
    inside = {node.id for node in nodes}
    outside = [value for node in nodes for value in node.inputs if value not in inside]
    assert len(set(outside)) == 1, f"{[node.op for node in nodes]} reads {outside}"
    value = graph.values[outside[0]]
    read = Input(outside[0], value.shape, value.dtype)
    return Graph(graph.dtype, graph.sizes, (read,), tuple(nodes), (nodes[-1].id,)), outside[0]
