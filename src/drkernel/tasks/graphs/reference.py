"""From a graph to the source of a reference, in the format of KernelBench."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import Any

from drkernel.tasks.graphs.body import Body, Flow
from drkernel.tasks.graphs.constructor import Constructor, in_constants
from drkernel.tasks.graphs.graph import Graph, Input, to_json
from drkernel.tasks.graphs.names import FRESH, INPUTS, Names, size_names
from drkernel.types import Task


@dataclass(frozen=True)
class Written:
    """A source, and where in it the parts of the graph are."""

    source: str
    names: dict[str, str]
    """The module constant of each size."""
    parameters: dict[str, str]
    """The attribute (`conv.weight`) that holds each parameter (`n0.weight`)."""
    buffers: dict[str, str]
    """The attribute that holds each number (`n1.value` -> `scale`) which `forward` reads from the module."""
    signature: str
    """What stands between the parentheses of `__init__`."""
    lines: tuple[str, ...]
    """The statements of `__init__` after `super().__init__()`."""
    arguments: tuple[str, ...]
    """The names of the forward's arguments, in the order of `Graph.inputs`."""


def write(graph: Graph, rng: random.Random) -> Written:
    """The source of a graph; all that people may write differently is drawn."""
    constants = size_names(graph.sizes, rng)
    names = Names(rng)
    names.reserve(*constants.values())
    inputs = {value.name: names.of(INPUTS.get(value.name, (value.name,))) for value in graph.inputs}
    made = Constructor(constants, rng, rng.choice((0.0, 0.5, 1.0)))
    body = Body(graph, inputs, made, _flow(rng), rng).statements()
    lines = ["import torch", "import torch.nn as nn"]
    if made.parameters and graph.dtype != "float32":
        made.lines.append(f"self.to(torch.{graph.dtype})")
    text = "\n".join([*body, *made.lines])
    lines += ["import torch.nn.functional as F"] * ("F." in text) + ["import math"] * ("math." in text)
    lines += ["", *(f"{constants[name]} = {dim.full}" for name, dim in graph.sizes.items())]
    lines += [*(f"{name} = {value}" for name, value in made.hyper.items()), "", "", "class Model(nn.Module):"]
    signature = ", ".join(["self", *made.arguments])
    if made.lines:
        lines += [f"    def __init__({signature}):", "        super().__init__()"]
        lines += [*(f"        {line}" for line in made.lines), ""]
    lines += [f"    def forward({', '.join(['self', *inputs.values()])}):", *(f"        {line}" for line in body)]
    lines += ["", "", "def get_inputs():", f"    return [{', '.join(_made(x, constants) for x in graph.inputs)}]"]
    lines += ["", "", "def get_init_inputs():", f"    return [{', '.join(made.arguments.values())}]", ""]
    source = "\n".join(lines)
    arguments = tuple(inputs.values())
    return Written(source, constants, made.parameters, made.buffers, signature, tuple(made.lines), arguments)


def task_of(graph: Graph, rng: random.Random, split: str = "train", family: str = "", key: str = "") -> Task:
    """The task of a graph: its source, its small sizes, and in `info` what answers are written from (see graph.py)."""
    written = write(graph, rng)
    small = {written.names[name]: dim.small for name, dim in graph.sizes.items()}
    composition = key or "+".join(graph.composition)
    digest = hashlib.sha256(f"{written.source}{sorted(small.items())}".encode()).hexdigest()[:8]
    return Task(
        id=f"generated/{composition}/{digest}",
        source=written.source,
        split=split,
        family=family,
        small=small,
        precision="ieee" if graph.dtype == "float32" else "low",
        info={
            "composition": list(graph.composition),
            "key": composition,
            "family": family,
            "shape": {written.names[name]: dim.full for name, dim in graph.sizes.items()},
            "small": small,
            "graph": to_json(graph),
            "names": written.names,
            "parameters": written.parameters,
            "buffers": written.buffers,
            "init": {"signature": written.signature, "lines": list(written.lines)},
            "arguments": list(written.arguments),
            **({} if graph.dtype == "float32" else {"dtype": graph.dtype}),
        },
    )


def _flow(rng: random.Random) -> Flow:
    kind = rng.choice(("nested", "reassign", "reassign", "fresh"))
    weights = {style: rng.choice((0.2, 1.0, 2.0)) for style in ("functional", "method", "manual", "module")}
    weights["manual"] *= 0.4
    return Flow(kind, rng.choice(FRESH), rng.random() < 0.5, rng.random() < 0.4, weights)


def _made(value: Input, constants: dict[str, str]) -> str:
    """The expression of `get_inputs` that makes an input."""
    shape = ", ".join(in_constants(dim, constants) for dim in value.shape)
    one = shape + "," * (len(value.shape) == 1)
    dtype = f", dtype=torch.{value.dtype}" if value.dtype in ("float16", "bfloat16") else ""
    high = in_constants(value.high, constants) if value.high else ""
    texts: dict[str, Any] = {
        "randint": f"torch.randint(0, {high}, ({one}))",
        "rand": f"torch.rand({shape}{dtype})",
        "upper": f"torch.triu(torch.randn({shape}{dtype}))",
        "lower": f"torch.tril(torch.randn({shape}{dtype}))",
        "mask": f"torch.rand({shape}) < 0.5",
        "causal": f"torch.tril(torch.ones({shape})).bool()",
        "sign": f"torch.sign(torch.randn({shape}{dtype}))",
        "near_one": f"torch.rand({shape}{dtype}) * 0.2 + 0.9",
        "probability": f"torch.softmax(torch.randn({shape}{dtype}), dim=-1)",
    }
    return texts.get(value.distribution, f"torch.randn({shape}{dtype})")
