"""The constructor of a reference: its arguments, its modules and parameters."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from drkernel.tasks.graphs.dims import Dim, Shape, names_in
from drkernel.tasks.graphs.names import Names, argument_name
from drkernel.tasks.graphs.nodes import Node, Parameter
from drkernel.tasks.graphs.op import Op

PLACEHOLDER = re.compile(r"\{(\w+)(=?)\}")


class Constructor:
    """Collects arguments and statements in the order in which they are asked for."""

    def __init__(self, constants: Mapping[str, str], rng: random.Random, lifted: float):
        self.constants, self._rng, self._lifted = constants, rng, lifted
        self.arguments: dict[str, str] = {}
        """Value, as an expression over module constants, by name."""
        self.sized: dict[str, str] = {}
        """The size that an argument is, by name."""
        self.defaults: dict[str, str] = {}
        """Arguments that nobody gives, and their default values."""
        self.hyper: dict[str, str] = {}
        """Literals that are module constants of their own, by name."""
        self.classes: dict[str, str] = {}
        """The names of further classes, by their text with a placeholder for the name."""
        self.lines: list[str] = []
        self.parameters: dict[str, str] = {}
        self.buffers: dict[str, str] = {}
        self.inner_buffers: dict[str, str] = {}
        """Those of blocks, which the reference's own forward does not read."""
        self._attributes = Names(rng)
        self._chosen: dict[tuple[str, str], str] = {}

    def size(self, dim: Dim) -> str:
        """A size as an expression over arguments."""
        text = dim.text
        for name in names_in(text):
            argument = self._of_size(name)
            text = re.sub(rf"\b{name}\b", argument, text)
        return text

    def _of_size(self, name: str) -> str:
        """The argument that is a size."""
        argument = argument_name(name)
        if argument not in self.arguments:
            self.arguments[argument], self.sized[argument] = self.constants[name], name
        return argument

    def shape(self, shape: Shape) -> str:
        """A shape as a tuple over arguments."""
        texts = [self.size(dim) for dim in shape]
        return f"({', '.join(texts)}{',' * (len(texts) == 1)})"

    def attribute(self, node: Node, op: Op, name: str, text: str = "") -> str:
        """An attribute of a node as an expression of the constructor: a literal, a size or an argument.

        `text` is the literal where it is not the value's own.
        """
        value = node.attributes[name]
        if isinstance(value, Dim):
            return self.size(value)
        if isinstance(value, tuple) and any(isinstance(part, Dim) for part in value):
            return self.shape(value) if len(value) > 1 else self.size(value[0])
        text = text or literal(value)
        return self._argument(node, op, name, text) or text

    def _argument(self, node: Node, op: Op, name: str, text: str) -> str:
        """The argument that holds an attribute; empty where it stays a literal."""
        key = (node.id, name)
        if key not in self._chosen:
            names = [n for n in op.arguments.get(name, ()) if n not in self.arguments and n not in self.defaults]
            names = names or [f"{n}_2" for n in op.arguments.get(name, ()) if f"{n}_2" not in self.arguments]
            lifted = names and not isinstance(node.attributes[name], bool) and self._rng.random() < self._lifted
            self._chosen[key] = self._rng.choice(names) if lifted else ""
            if lifted:
                self.arguments[self._chosen[key]] = self._literal_value(self._chosen[key], text)
        return self._chosen[key]

    def default(self, node: Node, op: Op, name: str) -> str:
        """An argument that has the default value of an attribute; empty where there is none of a free name."""
        names = [n for n in op.arguments.get(name, ()) if n not in self.arguments and n not in self.defaults]
        if name not in names or isinstance(node.attributes[name], tuple):
            return ""
        self.defaults[name] = literal(node.attributes[name])
        return name

    def block(self, key: str, inner: Constructor, name: str, arguments: str) -> str:
        """Adds a module of a further class (its text is `key`), whose constructor is `inner`; returns its attribute."""
        known = self.classes.setdefault(key, name)
        attribute = self._attributes.of(("block", "block1", "block2", "stage", "body"))
        self.lines.append(f"self.{attribute} = {known}({arguments})")
        self.parameters |= {place: f"{attribute}.{path}" for place, path in inner.parameters.items()}
        self.inner_buffers |= {place: f"{attribute}.{path}" for place, path in inner.buffers.items()}
        return attribute

    def _literal_value(self, name: str, text: str) -> str:
        """The value of an argument: a literal, or a module constant with the argument's name."""
        if self._rng.random() < 0.25 or name in self.constants.values():
            return text
        self.hyper[name] = text
        return name

    def held(self, node: Node, op: Op, name: str, text: str = "") -> str:
        """An attribute as an expression of `forward`: a literal, or an attribute of the module that holds it."""
        value = node.attributes[name]
        if isinstance(value, Dim):
            return self._held_size(value)
        text = text or literal(value)
        argument = self._argument(node, op, name, text)
        if not argument:
            return text
        key = f"{node.id}.{name}"
        if key not in self.buffers:
            self.buffers[key] = self._attributes.of([argument])
            self.lines.append(f"self.{self.buffers[key]} = {argument}")
        return f"self.{self.buffers[key]}"

    def _held_size(self, dim: Dim) -> str:
        """A size as an expression of `forward`, over attributes of the module that hold sizes."""
        text = dim.text
        for name in names_in(text):
            argument = self._of_size(name)
            if f"size.{name}" not in self.buffers:
                self.buffers[f"size.{name}"] = self._attributes.of([argument])
                self.lines.append(f"self.{self.buffers[f'size.{name}']} = {argument}")
            text = re.sub(rf"\b{name}\b", f"self.{self.buffers[f'size.{name}']}", text)
        return text

    def module(self, node: Node, op: Op, constructor: str) -> str:
        """Adds the module of a node; returns its attribute."""
        attribute = self._attributes.of(op.attribute_names or (op.name,))
        self.lines.append(f"self.{attribute} = {constructor}")
        self.parameters |= {f"{node.id}.{role}": f"{attribute}.{role}" for role in node.roles}
        return attribute

    def sequence(self, members: list[tuple[Node, str]]) -> str:
        """Adds an nn.Sequential of the nodes' modules; returns its attribute."""
        attribute = self._attributes.of(("net", "layers", "block", "model", "sequential"))
        self.lines.append(f"self.{attribute} = nn.Sequential(")
        self.lines += [*(f"    {text}," for _, text in members), ")"]
        for place, (node, _) in enumerate(members):
            self.parameters |= {f"{node.id}.{role}": f"{attribute}.{place}.{role}" for role in node.roles}
        return attribute

    def parameter(self, node: Node, op: Op, parameter: Parameter) -> str:
        """Adds a parameter that is no module's; returns its attribute."""
        key = f"{node.id}.{parameter.role}"
        if key not in self.parameters:
            names = op.attribute_names if parameter.role == "value" else (parameter.role,)
            attribute = self._attributes.of(names)
            self.lines.append(f"self.{attribute} = nn.Parameter({self._initial(attribute, parameter)})")
            self.parameters[key] = attribute
        return f"self.{self.parameters[key]}"

    def _initial(self, attribute: str, parameter: Parameter) -> str:
        """The first value of a parameter; its shape may be an argument."""
        call, _, factor = parameter.init.partition(" * ")
        shape = self.shape(parameter.shape)
        argument = f"{attribute}_shape"
        lifted = self._lifted >= 0 and self._rng.random() < max(self._lifted, 0.3)
        if lifted and argument not in self.arguments:
            texts = [self._outside(dim) for dim in parameter.shape]
            value = f"({', '.join(texts)}{',' * (len(texts) == 1)})"
            self.arguments[argument] = value
            shape = argument
            if self._rng.random() < 0.8:
                self.hyper[argument], self.arguments[argument] = value, argument
        elif self._rng.random() < 0.6:
            shape = shape[1:-1].rstrip(",")
        return f"torch.{call}({shape})" + (f" * {factor}" if factor else "")

    def store_sizes(self, share: float) -> None:
        """Keeps some sizes as attributes of the module, as people do out of habit."""
        kept = [name for name in self.sized if self._rng.random() < share and self._attributes.is_free(name)]
        self.lines[:0] = [f"self.{self._attributes.of([name])} = {name}" for name in kept]

    def _outside(self, dim: Dim) -> str:
        """A size as an expression over module constants."""
        return in_constants(dim, self.constants)


def in_constants(dim: Dim, constants: Mapping[str, str]) -> str:
    """A size as an expression over module constants."""
    return re.sub(r"[A-Za-z_]\w*", lambda found: constants[found[0]], dim.text)


def literal(value: Any) -> str:
    """A number, word or tuple as Python text."""
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' * (len(value) == 1)})"
    return repr(value)
