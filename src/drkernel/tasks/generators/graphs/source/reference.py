"""From a graph to the source of a reference, in the format of KernelBench."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drkernel.tasks.generators.graphs.graph import Graph, Input, to_json
from drkernel.tasks.generators.graphs.source import docs, layout
from drkernel.tasks.generators.graphs.source.blocks import plan
from drkernel.tasks.generators.graphs.source.body import NAME, Body
from drkernel.tasks.generators.graphs.source.constructor import Constructor, in_constants
from drkernel.tasks.generators.graphs.source.names import INPUTS, Names, size_names
from drkernel.tasks.generators.graphs.source.style import Style, draw_style
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
    classes: tuple[str, ...]
    """The lines of further classes, which the constructor needs."""


def write(graph: Graph, rng: random.Random) -> Written:
    """The source of a graph; all that people may write differently is drawn."""
    style = draw_style(rng)
    module = Names(rng, style.invented, "upper" if style.upper else "lower")
    module.reserve("torch", "nn", "F", "math", "Model")
    constants = size_names(graph.sizes, module, style.upper)
    names = Names(rng, style.invented)
    names.reserve(*constants.values())
    inputs = {value.name: names.of(INPUTS.get(value.name, (value.name,))) for value in graph.inputs}
    module.reserve(*inputs.values())
    made = Constructor(constants, rng, style, module)
    body = Body(graph, inputs, made, style, rng, plan(graph, rng) if style.blocks else []).statements()
    made.store_sizes(style.stored)
    if made.parameters and graph.dtype != "float32":
        made.lines.append(f"self.to(torch.{graph.dtype})")
    made.finish()
    signature = ", ".join(["self", *_signature(made, style)])
    classes = "\n\n\n".join(text.replace(NAME, name) for text, name in made.classes.items()).splitlines()
    model = [
        *classes,
        *([""] * 2 if classes else []),
        *_class(graph, made, signature, style, rng),
        *_forward(graph, inputs, constants, body, style, rng),
    ]
    tail = _tail(graph, constants, module, rng)
    given = ["def get_inputs():", *_get_inputs(graph, inputs, constants, style, tail)]
    initial = ["def get_init_inputs():", f"    return {_init_inputs(made, style)}"]
    sizes, numbers = _constants(graph, constants, style), [f"{name} = {value}" for name, value in made.hyper.items()]
    numbers += [f"{tail[1]} = ({tail[0]},)"] if tail else []
    imports = _imports("\n".join([*model, *body]), style)
    source = layout.arranged(imports, sizes, numbers, model, given, initial, style, module, rng)
    arguments = tuple(inputs.values())
    names_of = (constants, made.parameters, made.inner_buffers | made.buffers)
    return Written(source, *names_of, signature, tuple(made.lines), arguments, tuple(classes))


def _imports(text: str, style: Style) -> list[str]:
    """What the text needs, and what its author imports out of habit."""
    needed = [
        line
        for line, used in (("import torch.nn.functional as F", "F."), ("import math", "math."))
        if re.search(rf"(?<![\w.]){re.escape(used)}", text)
    ]
    return list(dict.fromkeys([*style.imports, *needed, *style.unused]))


def _constants(graph: Graph, constants: Mapping[str, str], style: Style) -> list[str]:
    """The statements that name the sizes."""
    pairs = [(constants[name], dim.full) for name, dim in graph.sizes.items()]
    if style.constants == "tuple" and len(pairs) < 6:
        return [f"{', '.join(name for name, _ in pairs)} = {', '.join(str(value) for _, value in pairs)}"]
    form = {"typed": "{}: int = {}", "noted": "{} = {}  # {}"}.get(style.constants, "{} = {}")
    return [form.format(name, value, name.lower().replace("_", " ")) for name, value in pairs]


def _class(graph: Graph, made: Constructor, signature: str, style: Style, rng: random.Random) -> list[str]:
    """The head of the class and its constructor."""
    lines = ["class Model(nn.Module):"]
    if style.documented[0]:
        lines += _indented(docs.docstring(docs.class_doc(graph, style.noise, rng), rng), 1)
    if not made.lines:
        return lines
    lines += [""] * style.documented[0] + [f"    def __init__({signature}):"]
    if style.documented[1] and made.arguments:
        hints = {name: _hint(made.hyper.get(value, value)) for name, value in made.arguments.items()}
        lines += _indented(docs.docstring(docs.constructor_doc(list(made.arguments), hints, rng), rng), 2)
    return [*lines, *_indented([style.super_call, *layout.noisy(made.lines, style.noise, rng)], 2), ""]


def _forward(
    graph: Graph,
    inputs: Mapping[str, str],
    constants: Mapping[str, str],
    body: list[str],
    style: Style,
    rng: random.Random,
) -> list[str]:
    names = [f"{name}: torch.Tensor" if style.hints else name for name in inputs.values()]
    lines = [f"    def forward({', '.join(['self', *names])}){' -> torch.Tensor' * style.hints}:"]
    if style.documented[2]:
        lines += _indented(docs.docstring(docs.forward_doc(graph, inputs, constants, rng), rng), 2)
    return [*lines, *_indented(layout.noisy(body, style.noise, rng), 2)]


def _signature(made: Constructor, style: Style) -> list[str]:
    """The arguments of the constructor, with types where the style has types."""
    given = {name: made.hyper.get(value, value) for name, value in made.arguments.items()}
    defaults = {name: made.shadowed[name] for name in given if name in made.shadowed} | made.defaults
    if style.hints:
        texts = [f"{name}: {_hint(value)}" for name, value in given.items() if name not in defaults]
        return texts + [f"{name}: {_hint(value)} = {value}" for name, value in defaults.items()]
    return [*(name for name in given if name not in defaults), *(f"{name}={value}" for name, value in defaults.items())]


def _hint(value: str) -> str:
    """The type of an argument with this value."""
    if value in ("True", "False"):
        return "bool"
    if value[0] in "([":
        return "tuple" if value[0] == "(" else "list"
    return "float" if re.fullmatch(r"-?\d*\.\d*(e-?\d+)?|-?\d+e-?\d+", value) else "int"


def _tail(graph: Graph, constants: Mapping[str, str], module: Names, rng: random.Random) -> tuple[str, str] | None:
    """The sizes behind the batch as one constant: their text, and its name."""
    shape = graph.inputs[0].shape
    if len(shape) < 2 or rng.random() > 0.12 or not all(dim.text in constants for dim in shape[1:]):
        return None
    return ", ".join(in_constants(dim, constants) for dim in shape[1:]), module.of(("input_shape", "shape", "dims"))


def _get_inputs(
    graph: Graph,
    inputs: Mapping[str, str],
    constants: Mapping[str, str],
    style: Style,
    tail: tuple[str, str] | None,
) -> list[str]:
    """The body of `get_inputs`."""
    made = [_made(value, constants, tail) for value in graph.inputs]
    symmetric = [inputs[value.name] for value in graph.inputs if value.distribution == "symmetric"]
    hidden = any(name in constants.values() for name in inputs.values())
    if not symmetric and (style.inputs == "direct" or hidden):
        return [f"    return [{', '.join(made)}]"]
    lines = [f"    {name} = {text}" for name, text in zip(inputs.values(), made, strict=True)]
    lines += [f"    {name} = ({name} + {name}.T) / 2" for name in symmetric]
    return [*lines, f"    return [{', '.join(inputs.values())}]"]


def _init_inputs(made: Constructor, style: Style) -> str:
    """What `get_init_inputs` returns: values in order, or by name."""
    if style.keywords and made.lines and made.arguments:
        return "[[], {" + ", ".join(f'"{name}": {value}' for name, value in made.arguments.items()) + "}]"
    return f"[{', '.join(made.arguments.values())}]"


def _indented(lines: Sequence[str], depth: int) -> list[str]:
    return [f"{'    ' * depth}{line}" if line else "" for line in lines]


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
            "init": {"signature": written.signature, "lines": list(written.lines), "classes": list(written.classes)},
            "arguments": list(written.arguments),
            **({} if graph.dtype == "float32" else {"dtype": graph.dtype}),
        },
    )


def _made(value: Input, constants: Mapping[str, str], tail: tuple[str, str] | None = None) -> str:
    """The expression of `get_inputs` that makes an input; `tail` is a constant for the last sizes of some."""
    shape = ", ".join(in_constants(dim, constants) for dim in value.shape)
    if tail and shape.endswith(f", {tail[0]}"):
        shape = f"{shape.removesuffix(tail[0])}*{tail[1]}"
    one = shape + "," * (len(value.shape) == 1)
    dtype = f", dtype=torch.{value.dtype}" if value.dtype in ("float16", "bfloat16") else ""
    high = in_constants(value.high, constants) if value.high else ""
    texts: dict[str, Any] = {
        "randint": f"torch.randint(0, {high}, ({one}))",
        "rand": f"torch.rand({shape}{dtype})",
        "upper": f"torch.triu(torch.randn({shape}{dtype}))",
        "lower": f"torch.tril(torch.randn({shape}{dtype}))",
        "mask": f"torch.rand({shape}) < 0.5",
        "sign": f"torch.sign(torch.randn({shape}{dtype}))",
        "probabilities": f"torch.rand({shape}{dtype}).softmax(dim=-1)",
        "near_one": f"torch.rand({shape}{dtype}) * 0.1 + 0.95",
    }
    return texts.get(value.distribution, f"torch.randn({shape}{dtype})")
