"""Operators in PyTorch: the expression of a node as a functional call, a method or the reference's own module."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from drkernel.coldstart.answers.context import Context, indexed
from drkernel.tasks.generators.graphs.dims import Dim
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.op import Spelling
from drkernel.tasks.generators.graphs.ops import OPS
from drkernel.tasks.generators.graphs.source.constructor import PLACEHOLDER, literal

OPERANDS = ("x", "y", "z", "w")
_DIMS = ("dim", "dims")


def expression(context: Context, node: Node, texts: Sequence[str], rng: random.Random) -> str:
    """The PyTorch expression of a node whose inputs have these expressions (names of variables)."""
    module = context.module(node)
    if module:
        return f"{module}({', '.join(texts)})" + "[0]" * OPS[node.op].several
    spellings = [s for s in OPS[node.op].spellings if s.fits(node.attributes) and s.style != "module"]
    single = [s for s in spellings if "\n" not in s.text and "math." not in s.text]
    first = [s for s in single if s.style == "functional"] or single or spellings
    return _filled(context, node, rng.choice(first), dict(zip(OPERANDS, texts, strict=False)))


def _filled(context: Context, node: Node, spelling: Spelling, operands: dict[str, str]) -> str:
    op = OPS[node.op]

    def fill(found: re.Match[str]) -> str:
        name, keyword = found[1], found[2]
        if name in operands:
            return operands[name]
        if not keyword and name in node.roles:
            return context.attribute(node, name)
        if keyword and node.attributes[name] == op.defaults.get(name):
            return ""
        value = node.attributes[name]
        if name == "index" and isinstance(value, str):
            return value
        if name in _DIMS and isinstance(value, tuple) and len(value) == 1:
            value = value[0]
        text = _size(context, value) if isinstance(value, Dim) else literal(value)
        return f", {name}={text}" if keyword else text

    return PLACEHOLDER.sub(fill, spelling.text)


def _size(context: Context, dim: Dim) -> str:
    """A size as an expression over attributes of the module that hold sizes."""
    held = context.info["buffers"]
    return re.sub(r"[A-Za-z_]\w*", lambda found: f"self.{indexed(held[f'size.{found[0]}'])}", dim.text)
