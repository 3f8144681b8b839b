"""What the tables of published sizes are built with: entries, and the texts of tasks and answers."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from drkernel.types import Task

GIB = 2.0**30

IMPORTS = "import torch\nimport torch.nn as nn\n"

TASK = """{imports}
{constants}


class Model(nn.Module):
{body}


def get_inputs():
{inputs}


def get_init_inputs():
    return [{init}]
"""

EMPTY_OF = "torch.empty_like(x)"


@dataclass(frozen=True)
class Entry:
    """A task at a published size, an answer that does its work in Triton, and one that is almost that."""

    name: str
    level: int
    source: str
    """The reference, as a file in KernelBench's format."""
    honest: str
    wrong: str
    """The honest answer with one term dropped or one constant changed."""
    gib: float
    """Of all inputs and outputs, where the facts state it or the shapes give it."""
    small: Mapping[str, str]
    """Values of the task's constants at which Triton's interpreter compares the answer; the judge does not see them."""

    @property
    def task(self) -> Task:
        """What the judge is given: it shrinks the task itself."""
        return Task(id=f"published/level{self.level}/{self.name}", source=self.source, level=self.level)

    def shrunk(self) -> str:
        """The reference with the small values of its constants.

        Raises:
            ValueError: it has no such constant.
        """
        lines = self.source.splitlines()
        for constant, value in self.small.items():
            places = [place for place, line in enumerate(lines) if line.startswith(f"{constant} = ")]
            if not places:
                raise ValueError(f"{self.name} has no constant {constant}")
            lines[places[0]] = f"{constant} = {value}"
        return "\n".join(lines) + "\n"


def entry(
    name: str, level: int, gib: float, source: str, honest: str, change: tuple[str, str], **small: object
) -> Entry:
    """An entry whose wrong answer has the second text of `change` where the honest one has the first.

    Raises:
        ValueError: the honest answer does not have the first text.
    """
    if change[0] not in honest:
        raise ValueError(f"{name}: the answer has no {change[0]!r}")
    wrong = honest.replace(*change)
    return Entry(name, level, source, honest, wrong, gib, {key: str(value) for key, value in small.items()})


def task(constants: str, forward: str, inputs: str, *, init: str = "", setup: str = "", arguments: str = "x") -> str:
    """A task file.

    Args:
        constants: lines of `NAME = value`.
        forward: an expression, or the lines of the method.
        inputs: an expression for the list of inputs without its brackets, or lines with a `return`.
        init: what `get_init_inputs` lists.
        setup: the parameters of `__init__` in its first line, the lines of it after that; none if empty.
        arguments: the parameters of `forward`.
    """
    body = constructor(setup) + f"def forward(self, {arguments}):\n" + textwrap.indent(returned(forward), "    ")
    listed = inputs if "return" in inputs else f"return [{inputs}]"
    return TASK.format(
        imports=IMPORTS,
        constants=textwrap.dedent(constants).strip(),
        body=textwrap.indent(body, "    "),
        inputs=textwrap.indent(textwrap.dedent(listed).strip(), "    "),
        init=init,
    )


def returned(forward: str) -> str:
    """The lines of a method, of which an expression is the shortest kind."""
    text = textwrap.dedent(forward).strip()
    return text if "return " in text else f"return {text}"


def constructor(setup: str) -> str:
    """The text of `__init__`, or nothing."""
    if not setup:
        return ""
    parameters, _, lines = setup.partition("\n")
    lines = textwrap.indent(textwrap.dedent(lines).strip(), "    ")
    return f"def __init__(self, {parameters}):\n    super().__init__()\n{lines}\n\n"


def answer(kernels: str, forward: str, *, setup: str = "", arguments: str = "x", **words: object) -> str:
    """A submission: Triton kernels with words for each `@WORD@`, and a `ModelNew` that launches them."""
    text = textwrap.dedent(kernels).strip()
    for word, value in words.items():
        text = text.replace(f"@{word.upper()}@", str(value))
    body = constructor(setup) + f"def forward(self, {arguments}):\n" + textwrap.indent(returned(forward), "    ")
    return (
        f"{IMPORTS}import triton\nimport triton.language as tl\n\n\n{text}\n\n\n"
        f"class ModelNew(nn.Module):\n{textwrap.indent(body, '    ')}\n"
    )
