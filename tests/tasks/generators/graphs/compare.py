"""A task's source against its graph."""

from __future__ import annotations

import torch
from torch import Tensor

from drkernel.tasks.generators.graphs.graph import Graph, evaluate, from_json
from drkernel.tasks.module import Reference
from drkernel.types import Task


def parameters_of(task: Task, model: torch.nn.Module) -> dict[str, Tensor]:
    """The tensors of a reference by key of the graph."""
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {key: held[attribute].detach() for key, attribute in task.info["parameters"].items()}


def outputs(task: Task, sizes: dict[str, int] | None = None) -> tuple[list[Tensor], list[Tensor], Graph]:
    """(what the source computes, what the graph says, the graph) at small sizes, or others, by module constant."""
    graph = from_json(task.info["graph"])
    constants = {**(task.small or {}), **(sizes or {})}
    reference = Reference(task, constants)
    model, inputs = reference.model(0).eval(), reference.inputs(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.rand_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.add_(0.1 + torch.rand_like(buffer))
    found = reference.forward(model, inputs)
    by_size = {size: constants[name] for size, name in task.info["names"].items()}
    expected = evaluate(graph, inputs, parameters_of(task, model), by_size)
    return list(found) if isinstance(found, tuple) else [found], list(expected), graph


def assert_same(task: Task, sizes: dict[str, int] | None = None) -> None:
    """The source computes what the graph says, in the shape that it says."""
    found, expected, graph = outputs(task, sizes)
    tolerance = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}[graph.dtype]
    for ours, theirs, value in zip(found, expected, graph.outputs, strict=True):
        assert ours.dtype == theirs.dtype == getattr(torch, graph.dtype_of(value)), task.id
        if not sizes:
            assert list(theirs.shape) == [dim.small for dim in graph.shape(value)], (task.id, theirs.shape)
        torch.testing.assert_close(
            ours, theirs, rtol=tolerance, atol=tolerance, msg=lambda m: f"{task.id}: {m}\n{task.source}"
        )
