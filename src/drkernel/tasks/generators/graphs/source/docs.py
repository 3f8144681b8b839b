"""What people write beside code: docstrings in several styles, comments."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from drkernel.tasks.generators.graphs.dims import Shape
from drkernel.tasks.generators.graphs.graph import Graph
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.source.constructor import in_constants
from drkernel.tasks.generators.graphs.source.lexicon import aside

_WORDS = {
    "conv": "convolution",
    "conv1d": "1D convolution",
    "conv2d": "2D convolution",
    "conv3d": "3D convolution",
    "conv_transpose1d": "1D transposed convolution",
    "conv_transpose2d": "2D transposed convolution",
    "conv_transpose3d": "3D transposed convolution",
    "linear": "linear layer",
    "matmul": "matrix product",
    "bmm": "batched matrix product",
    "matvec": "matrix-vector product",
    "silu": "Swish",
    "relu": "ReLU",
    "gelu": "GELU",
    "elu": "ELU",
    "batch_norm1d": "batch normalization",
    "batch_norm2d": "batch normalization",
    "batch_norm3d": "batch normalization",
    "layer_norm": "layer normalization",
    "rms_norm": "RMS normalization",
    "group_norm": "group normalization",
    "max": "maximum",
    "min": "minimum",
    "norm": "Euclidean norm",
    "scale": "scaling",
    "add_parameter": "bias",
    "add_constant": "constant shift",
    "add": "sum",
    "multiply": "elementwise product",
}
_ARGUMENTS = {
    "in_channels": "channels of the input",
    "out_channels": "channels that come out",
    "in_features": "width of the input",
    "out_features": "width of the output",
    "kernel_size": "side of the window",
    "stride": "step of the window",
    "padding": "zeros added on each side",
    "dim": "dimension to work along",
    "eps": "keeps the division stable",
    "groups": "number of channel groups",
    "num_groups": "number of channel groups",
    "hidden_size": "width of the hidden layer",
}
_OPENINGS = ("Applies {}.", "{}.", "Computes {}.", "Module: {}.", "A layer with {}.", "Runs {} on its input.")
_COMMENTS = ("# {}", "# {}", "# apply {}", "# Apply {}", "# step {place}: {}", "# -> {}")


def words(op: str) -> str:
    """An operator in words."""
    return _WORDS.get(op, op.replace("_", " "))


def summary(graph: Graph, rng: random.Random) -> str:
    """One sentence on what the module does."""
    names = list(dict.fromkeys(words(node.op) for node in graph.nodes))
    if len(names) > 5:
        names = [*names[:3], "more"]
    joined = (
        names[0]
        if len(names) == 1
        else f"{', '.join(names[:-1])}{rng.choice((' and ', ', then ', ' followed by '))}{names[-1]}"
    )
    text = rng.choice(_OPENINGS).format(joined)
    return text[0].upper() + text[1:]


def class_doc(graph: Graph, noise: float, rng: random.Random) -> list[str]:
    """What a class says of itself: what it does, or other things, or both."""
    lines = [] if rng.random() < noise else [summary(graph, rng)]
    while not lines or rng.random() < noise:
        text = aside(rng)
        lines.insert(rng.randrange(len(lines) + 1), f"{text[0].upper()}{text[1:]}.")
    return lines


def constructor_doc(arguments: Sequence[str], hints: Mapping[str, str], rng: random.Random) -> list[str]:
    """Lines that describe the arguments of a constructor."""
    head = rng.choice(("Args:", "Arguments:", "Parameters:"))
    lines = []
    for name in arguments:
        text = _ARGUMENTS.get(name, f"{name.replace('_', ' ')}")
        lines.append(f"    {name} ({hints[name]}): {text}" if rng.random() < 0.8 else f"    {name}: {text}")
    return [head, *lines]


def forward_doc(graph: Graph, inputs: Mapping[str, str], constants: Mapping[str, str], rng: random.Random) -> list[str]:
    """Lines that describe the arguments of `forward` and what it returns, with shapes."""
    form = rng.choice(
        ("{name} (torch.Tensor): shape {shape}", "{name}: tensor of shape {shape}", "{name} (Tensor): {shape}")
    )
    lines = ["Args:"]
    for value in graph.inputs:
        lines.append("    " + form.format(name=inputs[value.name], shape=shape_text(value.shape, constants)))
    out = graph.shape(graph.outputs[0])
    shown = shape_text(out, constants)
    end = f"tensor of shape {shown}" if out and len(shown) < 70 else "the result" if out else "a scalar"
    return [*lines, "", "Returns:", f"    {end}"]


def shape_text(shape: Shape, constants: Mapping[str, str]) -> str:
    """A shape as people write it in comments."""
    return f"({', '.join(in_constants(dim, constants).lower() for dim in shape)}{',' * (len(shape) == 1)})"


def docstring(lines: Sequence[str], rng: random.Random) -> list[str]:
    """Lines between quotes, in one of the usual layouts."""
    if len(lines) == 1:
        return rng.choice(([f'"""{lines[0]}"""'], ['"""', lines[0], '"""']))
    return ['"""', *lines, '"""'] if rng.random() < 0.6 else [f'"""{lines[0]}', *lines[1:], '"""']


def comment(node: Node, place: int, rng: random.Random) -> str:
    """A comment above a statement."""
    return rng.choice(_COMMENTS).format(words(node.op), place=place + 1)
