"""From a graph to steps: library calls, and groups of nodes that one kernel computes.

Library calls come as early as their inputs allow, so that what follows several of them can be fused. Between them, the
longest run of nodes that one scheme fits and that leaves a single value becomes a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drkernel.coldstart.answers.context import Context
from drkernel.coldstart.answers.schemes import scheme_of
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.ops import OPS

FREE = ("flatten", "unsqueeze", "squeeze", "dropout", "transpose", "chunk", "split_heads")
"""Operators that PyTorch computes without touching an element."""
LIBRARY_OPS = ("cat", "split_heads", "join_heads")
LIBRARY_KINDS = ("convolution", "product", "library")


@dataclass(frozen=True)
class Step:
    """One node in PyTorch, or several in a kernel."""

    nodes: tuple[Node, ...]
    scheme: str = ""
    """Empty: PyTorch computes the node."""

    @property
    def output(self) -> Node:
        return self.nodes[-1]

    @property
    def inputs(self) -> list[str]:
        """The values from before that it reads, in order."""
        own = {node.id for node in self.nodes}
        found = [value for node in self.nodes for value in node.inputs if value not in own]
        return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Plan:
    """What kernels may compute."""

    left: frozenset[str] = frozenset()
    """Nodes that PyTorch computes, though a kernel could."""
    owned: frozenset[str] = frozenset()
    """Convolutions, products and attentions that a kernel computes."""
    most: int = 99
    """The most nodes of one kernel."""


def partition(context: Context, plan: Plan) -> list[Step]:
    """The steps that compute all nodes, in order."""
    order = _ordered(context, plan)
    steps: list[Step] = []
    while order:
        step = _first(context, plan, order)
        steps.append(step)
        order = order[len(step.nodes) :]
    return steps


def in_library(node: Node, plan: Plan) -> bool:
    kind = OPS[node.op].kind
    library = (
        kind in LIBRARY_KINDS and node.op not in ("outer", "diagonal_matmul", "matvec")
    ) or node.op == "attention"
    return node.id in plan.left or (library and node.id not in plan.owned) or node.op in LIBRARY_OPS


def _first(context: Context, plan: Plan, order: Sequence[Node]) -> Step:
    """The step that begins with the first node."""
    if in_library(order[0], plan) or order[0].op in ("flatten", "unsqueeze", "squeeze", "dropout"):
        return Step((order[0],))
    length = 1
    while length < min(len(order), plan.most) and not in_library(order[length], plan):
        length += 1
    for end in range(length, 0, -1):
        nodes = tuple(order[:end])
        if end > 1 and nodes[-1].op in FREE:
            continue
        useful = not all(node.op in FREE for node in nodes)
        if useful and _one_escapes(context, nodes) and (name := scheme_of(context, nodes)):
            return Step(nodes, name)
    return Step((order[0],))


def _one_escapes(context: Context, nodes: Sequence[Node]) -> bool:
    """Whether all values but the last one are needed here alone."""
    own = {node.id for node in nodes}
    return not any(
        node.id in context.graph.outputs or any(user.id not in own for user in context.readers(node.id))
        for node in nodes[:-1]
    )


def _ordered(context: Context, plan: Plan) -> list[Node]:
    """The nodes so that library calls come early, and what a node reads comes right before it."""
    nodes, done, order = context.nodes, set(), []
    ready = lambda node: all(value in done or value not in nodes for value in node.inputs)

    def visit(node: Node) -> None:
        if node.id not in done:
            for value in node.inputs:
                if value in nodes:
                    visit(nodes[value])
            done.add(node.id)
            order.append(node)

    while len(order) < len(nodes):
        waiting = [node for node in nodes.values() if node.id not in done]
        library = [node for node in waiting if in_library(node, plan)]
        if free := [node for node in library if ready(node)]:
            visit(free[0])
        else:
            visit(library[0] if library else waiting[-1])
    return order
