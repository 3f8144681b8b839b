"""The backward pass of a task, as a task of its own: given the gradients of outputs, those of inputs and parameters.

    class Model(ForwardModel):  # the task's own
        def forward(self, x, grad_output):
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                output = super().forward(x)
                return torch.autograd.grad(output, (x, *self.parameters()), grad_output)

So any source of tasks is one of backward passes, too. Constructor arguments, weights and constants are the forward's.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import tokenize
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from drkernel.tasks.loaders.kernelbench import read_task
from drkernel.tasks.module import Reference
from drkernel.tasks.seeding import global_state_kept
from drkernel.tasks.sources import FORWARD_INPUTS
from drkernel.types import DrKernelError, Task

_GRAD = "grad_output"


@dataclass(frozen=True)
class _Forward:
    """What the backward pass of a forward is written from."""

    arguments: list[str]
    inputs: list[str]
    """The arguments that have a gradient, in training and in evaluation."""
    weights: list[str] | None
    """The parameters that have one in both; None: all of them."""
    outputs: list[tuple[int | None, torch.dtype]]
    """Places and dtypes of the outputs that have one; None: the only output."""
    keywords: bool
    """Whether the constructor takes keywords alone."""


def backward(task: Task) -> Task:
    """The task's backward pass. It is in the split of the task, and its id is that of the task and `/backward`.

    Raises:
        DrKernelError: nothing has a gradient, or the forward does not run without data.
    """
    found = _looked_at(task)
    forward = f"Forward{task.entry_point}"
    renamed = _renamed(task.source, {task.entry_point: forward, "get_inputs": FORWARD_INPUTS}).rstrip()
    needed = "" if _imports_torch(task.source) else "import torch\n\n\n"
    source = f"{renamed}\n\n\n{needed}{_model(task.entry_point, forward, found)}\n\n{_inputs(forward, found)}"
    return replace(task, id=f"{task.id}/backward", source=source, info={**task.info, "forward": task.id})


def backward_passes(tasks: Sequence[Task], on_skip: Callable[[str], object]) -> list[Task]:
    """The backward passes of tasks. `on_skip` is called with one line about each that has none, which is left out.

    Raises:
        DrKernelError: none has one.
    """
    made, problems = [], []
    for task in tasks:
        try:
            made.append(backward(task))
        except DrKernelError as error:
            problems.append(str(error))
            on_skip(f"tasks.backward: left out: {error}")
    if not made:
        raise DrKernelError(f"tasks.backward: none of {len(tasks)} tasks has a backward pass; {problems[0]}")
    return made


def _looked_at(task: Task) -> _Forward:
    """Looks at a forward on torch's meta device, which takes neither memory nor arithmetic."""
    try:
        with global_state_kept(), torch.device("meta"), torch.enable_grad():
            reference = Reference(task)
            model, inputs = reference.model(0), reference.inputs(0)
            inputs = [x.detach().requires_grad_() if _is_float(x) else x for x in inputs]
            names = _argument_names(model, len(inputs))
            return _differentiated(model, dict(zip(names, inputs, strict=True)), bool(reference.init_args()[1]))
    except DrKernelError as error:
        raise DrKernelError(f"task {task.id}: {error}" if task.id not in str(error) else str(error)) from error
    except Exception as error:  # whatever an operator raises on that device, or in its gradient
        raise DrKernelError(f"task {task.id}: {type(error).__name__}: {' '.join(str(error).split())}") from error


def _differentiated(model: nn.Module, arguments: Mapping[str, Any], keywords: bool) -> _Forward:
    result = model(*arguments.values())
    several = enumerate(result if isinstance(result, (tuple, list)) else ())
    places: dict[int | None, Any] = {None: result} if isinstance(result, Tensor) else dict(several)
    outputs = {place: y for place, y in places.items() if isinstance(y, Tensor) and y.requires_grad}
    if not outputs:
        raise DrKernelError("no output has a gradient")
    inputs = {name: x for name, x in arguments.items() if _is_float(x)}
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    have = [True] * (len(inputs) + len(weights))
    for train in (True, False):  # noise whose size is learnt is for training alone
        result = model.train(train)(*arguments.values())
        every = [result if place is None else result[place] for place in outputs]
        given = [torch.ones_like(y) for y in every]
        found = torch.autograd.grad(every, [*inputs.values(), *weights.values()], given, allow_unused=True)
        have = [known and gradient is not None for known, gradient in zip(have, found, strict=True)]
    if not any(have):
        raise DrKernelError("no input or parameter has a gradient")
    of_weights = [name for name, has in zip(weights, have[len(inputs) :], strict=True) if has]
    return _Forward(
        arguments=list(arguments),
        inputs=[name for name, has in zip(inputs, have, strict=False) if has],
        weights=None if len(of_weights) == len(list(model.parameters())) > 0 else of_weights,
        outputs=[(place, y.dtype) for place, y in outputs.items()],
        keywords=keywords,
    )


def _imports_torch(source: str) -> bool:
    imported = [name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import) for name in node.names]
    return any(name.name.split(".")[0] == "torch" and name.asname is None for name in imported)


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _argument_names(model: nn.Module, count: int) -> list[str]:
    """The names that the forward has for its first arguments; `x0`, `x1` where it has none."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in inspect.signature(model.forward).parameters.values() if p.kind in kinds][:count]
    is_told = len(names) == count and not any(name.startswith(_GRAD) for name in names)
    return names if is_told else [f"x{i}" for i in range(count)]


def _model(name: str, forward: str, found: _Forward) -> str:
    grads = [_GRAD if place is None else f"{_GRAD}{place}" for place, _ in found.outputs]
    outputs = ["output" if place is None else f"output[{place}]" for place, _ in found.outputs]
    weights = [f'self.get_parameter("{name}")' for name in found.weights or ()]
    wanted = [*found.inputs, *(["*self.parameters()"] if found.weights is None else weights)]
    only = "[0]" if len(wanted) == 1 and found.weights is not None else ""
    lines = [
        f"class {name}({forward}):",
        f"    def forward(self, {', '.join([*found.arguments, *grads])}):",
        "        with torch.enable_grad():",
        *(f"            {x} = {x}.detach().requires_grad_()" for x in found.inputs),
        f"            output = super().forward({', '.join(found.arguments)})",
        f"            return torch.autograd.grad({_tuple(outputs)}, {_tuple(wanted)}, {_tuple(grads)}){only}",
    ]
    return "\n".join(lines) + "\n"


def _inputs(forward: str, found: _Forward) -> str:
    arguments = "**get_init_inputs()[1]" if found.keywords else "*get_init_inputs()"
    places = ["output" if place is None else f"output[{place}]" for place, _ in found.outputs]
    drawn = [f"torch.randn({y}.shape{_dtype(dtype)})" for y, (_, dtype) in zip(places, found.outputs, strict=True)]
    lines = [
        "def get_inputs():",
        f"    inputs = {FORWARD_INPUTS}()",
        '    with torch.device("meta"):  # for the shape alone',
        f"        model = {forward}({arguments})",
        '        output = model(*(x.to("meta") if torch.is_tensor(x) else x for x in inputs))',
        f"    return [*inputs, {', '.join(drawn)}]",
    ]
    return "\n".join(lines) + "\n"


def _tuple(parts: Sequence[str]) -> str:
    """As an expression: one part alone is no tuple."""
    is_one = len(parts) == 1
    return parts[0] if is_one and not parts[0].startswith("*") else f"({', '.join(parts)}{',' * is_one})"


def _dtype(dtype: torch.dtype) -> str:
    return "" if dtype == torch.float32 else f", dtype={dtype}"


def _renamed(source: str, names: Mapping[str, str]) -> str:
    """The source with other names, wherever they stand as names."""
    lines = source.splitlines(keepends=True)
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(source).readline))):
        if token.type == tokenize.NAME and token.string in names:
            row, start, end = token.start[0] - 1, token.start[1], token.end[1]
            lines[row] = lines[row][:start] + names[token.string] + lines[row][end:]
    return "".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Prints the backward pass of a task file."""
    parser = argparse.ArgumentParser(prog="python -m drkernel.tasks.backward", description=main.__doc__)
    parser.add_argument("task", type=Path, metavar="TASK.py")
    given = parser.parse_args(arguments)
    try:
        print(backward(read_task(given.task)).source, end="")
    except DrKernelError as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    main()
