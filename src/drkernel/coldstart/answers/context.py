"""What is known of a task while its answer is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from drkernel.coldstart.answers.sizes import Sizes
from drkernel.tasks.generators.graphs.dims import Dim, Shape
from drkernel.tasks.generators.graphs.graph import Graph, from_json
from drkernel.tasks.generators.graphs.nodes import Node, Parameter
from drkernel.tasks.generators.graphs.ops import OPS
from drkernel.types import Task


@dataclass(frozen=True)
class Context:
    """A task's graph, and where the reference keeps what the graph names."""

    graph: Graph
    info: Mapping[str, Any]

    @classmethod
    def of(cls, task: Task) -> Context:
        return cls(from_json(task.info["graph"]), task.info)

    @property
    def narrow(self) -> bool:
        return self.graph.dtype != "float32"

    @cached_property
    def nodes(self) -> dict[str, Node]:
        return {node.id: node for node in self.graph.nodes}

    def shape(self, value: str) -> Shape:
        return self.graph.shape(value)

    def attribute(self, node: Node, role: str) -> str:
        """The host expression of a parameter: `self.conv.weight`, `self.net[0].weight`."""
        return "self." + indexed(self.info["parameters"][f"{node.id}.{role}"])

    def module(self, node: Node) -> str:
        """The host expression of the module that owns a node's parameters; empty where none does."""
        modules = any(spelling.style == "module" for spelling in OPS[node.op].spellings)
        path = self.info["parameters"].get(f"{node.id}.{node.roles[0]}", "") if node.roles and modules else ""
        return "self." + indexed(path.rpartition(".")[0]) if "." in path else ""

    def readers(self, value: str) -> list[Node]:
        return self.graph.users(value)


def indexed(path: str) -> str:
    """`net.0.weight` as `net[0].weight`."""
    return re.sub(r"\.(\d+)", r"[\1]", path)


@dataclass
class Host:
    """What a step of the forward sees: the variables that hold values, and their sizes."""

    context: Context
    variables: dict[str, str]
    """The host variable of each value that is computed."""
    sizes: Sizes

    @classmethod
    def of(cls, context: Context, variables: dict[str, str], values: list[str]) -> Host:
        """With the sizes of these values, those of most dimensions first."""
        sizes = Sizes(context.graph, context.info["arguments"])
        for value in sorted(values, key=lambda value: -len(context.shape(value))):
            sizes.bind(variables[value], value, context.shape(value))
        return cls(context, variables, sizes)

    def shape(self, value: str) -> Shape:
        return self.sizes.shape(value)

    def variables_of_floats(self) -> list[str]:
        """The values at hand that have the graph's dtype."""
        graph = self.context.graph
        return [value for value in self.variables if graph.dtype_of(value) == graph.dtype]

    def float_source(self) -> str:
        """A host tensor of the graph's dtype."""
        floats = self.variables_of_floats()
        if floats:
            return self.variables[floats[0]]
        node = next(node for node in self.context.graph.nodes if node.roles)
        return self.context.attribute(node, node.roles[0])

    def parameter_shape(self, node: Node, parameter: Parameter) -> Shape:
        """The shape of a parameter in host names; a size that no input has is asked of the tensor itself."""
        found: list[Dim] = []
        for place, dim in enumerate(parameter.shape):
            try:
                found += self.sizes.of((dim,))
            except KeyError:
                text = f"{self.context.attribute(node, parameter.role)}.shape[{place}]"
                found.append(Dim(text, dim.full, dim.small))
        return tuple(found)


def number(value: Any) -> str:
    """A constant as text of a kernel."""
    return repr(value)
