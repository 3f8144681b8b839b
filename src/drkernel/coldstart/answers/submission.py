"""From steps to the text of a submission."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from drkernel.coldstart.answers.context import Context, Host
from drkernel.coldstart.answers.draft import Draft
from drkernel.coldstart.answers.library import expression
from drkernel.coldstart.answers.partition import Step
from drkernel.coldstart.answers.schemes import SCHEMES
from drkernel.coldstart.answers.style import Style
from drkernel.tasks.generators.graphs.dims import count
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.ops import OPS

HELPERS = {
    "times": ["@triton.jit", "def times(a, b):", "    return a * b"],
    "larger": ["@triton.jit", "def larger(a, b):", "    return tl.maximum(a, b)"],
    "smaller": ["@triton.jit", "def smaller(a, b):", "    return tl.minimum(a, b)"],
    "log_add": [
        "@triton.jit",
        "def log_add(a, b):",
        "    m = tl.maximum(a, b)",
        "    return m + tl.log(tl.exp(a - m) + tl.exp(b - m))",
    ],
}
"""Functions that kernels call."""


_STRIDED = (
    *("transpose", "permute", "chunk", "cut", "topk", "split_heads", "attention", "multihead_attention"),
    *("lstm", "gru", "channel_shuffle"),
)
"""Operators whose results PyTorch may leave in another order."""


def plan(context: Context, written: Written) -> list[str]:
    """The plan as comments: a line per step with what it computes, its output, blocks and traffic.

    # conv2d: torch -> 64x32x254x254
    # kernel: relu, add_parameter -> 64x32x254x254; BLOCK 1024; read 505 MB, write 505 MB
    """
    lines, drafts = [], {step.output.id: draft for step, draft in written.drafts}
    for step in written.steps:
        shape = "x".join(str(dim.full) for dim in context.shape(step.output.id)) or "scalar"
        names = ", ".join(node.op for node in step.nodes)
        if not step.scheme:
            lines.append(f"# {names}: torch -> {shape}")
            continue
        draft = drafts.get(step.output.id)
        blocks = (
            ", ".join(f"{name} {value}" for name, value in draft.blocks.items() if value.isdigit()) if draft else ""
        )
        read = sum(_bytes(context, value) for value in step.inputs)
        traffic = f"read {_size(read)}, write {_size(_bytes(context, step.output.id))}"
        lines.append("# " + "; ".join([f"kernel: {names} -> {shape}", *[blocks] * bool(blocks), traffic]))
    return lines


def _bytes(context: Context, value: str) -> int:
    wide = {"float32": 4, "int64": 8, "bool": 1}.get(context.graph.dtype_of(value), 2)
    return wide * count(context.shape(value))


def _size(number: int) -> str:
    return f"{number / 1e6:.0f} MB" if number >= 1e6 else f"{number / 1e3:.0f} KB"


@dataclass
class Written:
    """A submission in parts."""

    drafts: list[tuple[Step, Draft]] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    steps: Sequence[Step] = ()
    left_out: str = ""
    """An import that is forgotten."""

    @property
    def shape(self) -> str:
        """What is computed how, whatever it looks like."""
        return repr([(step.scheme, [node.id for node in step.nodes]) for step in self.steps])


def write(context: Context, steps: Sequence[Step], rng: random.Random, style: Style | None = None) -> str:
    """The submission that computes the steps."""
    return render(context, compose(context, steps, rng, style or Style()))


def compose(context: Context, steps: Sequence[Step], rng: random.Random, style: Style) -> Written:
    """The kernels and the statements of the forward."""
    variables = dict(zip((x.name for x in context.graph.inputs), context.info["arguments"], strict=True))
    written, contiguous = Written(steps=steps), {node.id: True for node in context.graph.nodes}
    contiguous |= {x.name: False for x in context.graph.inputs}
    number = sum(bool(step.scheme) for step in steps)
    for place, step in enumerate(steps):
        later = {value for after in steps[place + 1 :] for value in after.inputs} | set(context.graph.outputs)
        if step.scheme:
            _kernel(context, step, variables, written, contiguous, number, later, style)
        else:
            _library(context, step.output, variables, written, contiguous, rng, later, style.output)
        for value in [value for value in variables if value not in later]:
            del variables[value]
    written.forward.append(f"return {', '.join(variables[value] for value in context.graph.outputs)}")
    return written


def _library(
    context: Context,
    node: Node,
    variables: dict[str, str],
    written: Written,
    contiguous: dict[str, bool],
    rng: random.Random,
    later: set[str],
    output: str,
) -> None:
    if node.op == "dropout":  # answers are judged in evaluation mode
        variables[node.id], contiguous[node.id] = variables[node.inputs[0]], contiguous[node.inputs[0]]
        return
    text = expression(context, node, [variables[value] for value in node.inputs], rng)
    free = [variables[value] for value in node.inputs if value not in later]
    taken = {name for value, name in variables.items() if value in later}
    name = free[0] if free and free[0] not in taken else _new(taken | set(variables.values()), output)
    *before, last = text.split("\n")
    written.forward += [*before, f"{name} = {last}"]
    new = OPS[node.op].kind in ("convolution", "product")
    contiguous[node.id] = new or (node.op not in _STRIDED and all(contiguous[value] for value in node.inputs))
    variables[node.id] = name


def _new(taken: set[str], output: str) -> str:
    names = [output, *(f"{output}{number}" for number in range(2, 50))]
    return next(name for name in names if name not in taken)


def _kernel(
    context: Context,
    step: Step,
    variables: dict[str, str],
    written: Written,
    contiguous: dict[str, bool],
    number: int,
    later: set[str],
    style: Style,
) -> None:
    for value in step.inputs:
        if not contiguous[value]:
            written.forward.append(f"{variables[value]} = {variables[value]}.contiguous()")
            contiguous[value] = True
    host = Host.of(context, {value: variables[value] for value in step.inputs}, step.inputs)
    for node in step.nodes:
        if node.op == "embedding":
            host.sizes.bind(context.attribute(node, "weight"), "", node.parameters[0].shape)
    place = len(written.drafts) + 1
    draft = Draft(f"{style.kernel}{place}" if number > 1 else style.kernel, context.narrow, style=style)
    SCHEMES[step.scheme].write(context, host, step.nodes, draft)
    _share(written, step, draft)
    statements = [*draft.host, *draft.launch(), *draft.after]
    taken = {name for value, name in variables.items() if value in later or value in step.inputs}
    result = _new(taken | set(context.info["arguments"]), style.output)
    statements = [re.sub(r"\bOUT\b", result, line) for line in statements]
    written.forward += host.sizes.statements("\n".join(statements)) + statements
    variables[step.output.id] = result


def _share(written: Written, step: Step, draft: Draft) -> None:
    """Uses an earlier kernel where it is the same."""
    for _, other in written.drafts:
        if other.definition()[2:] == draft.definition()[2:] and _parameters(other) == _parameters(draft):
            draft.name = other.name
            return
    written.drafts.append((step, draft))


def _parameters(draft: Draft) -> list[str]:
    return [*draft.pointers.values(), *draft.sizes.values(), *draft.blocks]


def render(context: Context, written: Written, with_plan: bool = False) -> str:
    """The whole file; with the plan before the code."""
    init = context.info["init"]
    classes = _constructors(init.get("classes", []))
    body = "\n".join([*classes, *init["lines"], *written.forward])
    lines = ["import torch", "import torch.nn as nn"]
    lines += ["import torch.nn.functional as F"] * ("F." in body) + ["import math"] * ("math." in body)
    lines += ["import triton", "import triton.language as tl", ""]
    for name in dict.fromkeys(helper for _, draft in written.drafts for helper in draft.helpers):
        lines += [*HELPERS[name], ""]
    functions: list[str] = []
    for _, draft in written.drafts:
        draft.functions = {name: text for name, text in draft.functions.items() if name not in functions}
        functions += draft.functions
        lines += [*draft.definition(), ""]
    lines += [*classes, "class ModelNew(nn.Module):"]
    if init["lines"]:
        lines += [f"    def __init__({init['signature']}):", "        super().__init__()"]
        lines += [*(f"        {line}" for line in init["lines"]), ""]
    arguments = ", ".join(["self", *context.info["arguments"]])
    lines += [f"    def forward({arguments}):", *(f"        {line}" for line in written.forward)]
    lines = [line for line in lines if line != written.left_out or not line]
    return "\n".join([*(plan(context, written) if with_plan else []), *lines]) + "\n"


def _constructors(classes: Sequence[str]) -> list[str]:
    """The lines of further classes without their forwards, which nobody calls."""
    found: list[str] = []
    inside = False
    for line in classes:
        if line and len(line) - len(line.lstrip()) <= 4:
            inside = line.lstrip().startswith("def forward")
        if not inside and (line or (found and found[-1])):
            found.append(line)
    return [*found, ""] if found and found[-1] else found
