"""The constructor of a reference: its arguments, its modules and parameters."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from drkernel.tasks.generators.graphs.dims import Dim, Shape, names_in
from drkernel.tasks.generators.graphs.nodes import Node, Parameter
from drkernel.tasks.generators.graphs.op import Op
from drkernel.tasks.generators.graphs.source.names import Names, argument_names
from drkernel.tasks.generators.graphs.source.style import Style

PLACEHOLDER = re.compile(r"\{(\w+)(=?)\}")
_OF_MODULES = frozenset(dir(nn.Module()))
_LITERAL = ("index", "chunks", "position", "start_dim", "contiguous", "training", "last")
"""Attributes that nobody gives as an argument."""
_SHARE_OF_BOOLS = 0.3
_OTHER_SIZES = (16, 32, 64, 100, 128, 256, 512, 768)


class Constructor:
    """Collects arguments and statements in the order in which they are asked for."""

    def __init__(self, constants: Mapping[str, str], rng: random.Random, style: Style, module: Names | None = None):
        """`module`: the names of the module's constants, where the constructor may need further ones."""
        self.constants, self._rng, self._style = constants, rng, style
        self._module = module
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
        self.shadowed: dict[str, str] = {}
        """The default values of arguments that are given all the same."""
        self._attributes, self._names = Names(rng, style.invented), Names(rng, style.invented)
        self._names.reserve("self", "torch", "nn", "F", "math")
        self._chosen: dict[tuple[str, str], str] = {}
        self._alike: dict[tuple[str, str], str] = {}

    def size(self, dim: Dim) -> str:
        """A size as an expression over arguments."""
        return _renamed(dim.text, {name: self._of_size(name) for name in names_in(dim.text)})

    def _of_size(self, name: str) -> str:
        """The argument that is a size."""
        found = next((argument for argument, size in self.sized.items() if size == name), "")
        if not found:
            found = self._names.of(argument_names(name, self.constants[name]))
            self.arguments[found], self.sized[found] = self.constants[name], name
        return found

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
            self._chosen[key] = self._new(op, name, text) if self._is_lifted(node.attributes[name], name) else ""
        return self._chosen[key]

    def _is_lifted(self, value: Any, name: str) -> bool:
        share = self._style.lifted * (_SHARE_OF_BOOLS if isinstance(value, bool) else 1.0)
        return self._module is not None and name not in _LITERAL and self._rng.random() < share

    def _new(self, op: Op, name: str, text: str) -> str:
        """A new argument with this value, or one of the same kind and value."""
        if (name, text) in self._alike and self._rng.random() < 0.4:
            return self._alike[name, text]
        argument = self._alike[name, text] = self._names.of(op.arguments.get(name, (name,)))
        defaulted = self._rng.random() < self._style.defaults
        if defaulted and self._rng.random() < 0.6:
            self.defaults[argument] = text
            return argument
        if defaulted:
            self.shadowed[argument] = _another(text, self._rng)
        self.arguments[argument] = self._literal_value(argument, text)
        return argument

    def default(self, node: Node, op: Op, name: str) -> str:
        """An argument that has the default value of an attribute; empty where there is none of a free name."""
        value = node.attributes[name]
        if self._module is None or name in _LITERAL or isinstance(value, tuple):
            return ""
        if (name, literal(value)) not in self._alike:
            argument = self._alike[name, literal(value)] = self._names.of(op.arguments.get(name, (name,)))
            self.defaults[argument] = literal(value)
        return self._alike[name, literal(value)]

    def finish(self) -> None:
        """Puts arguments with defaults behind those without."""
        if self._rng.random() < 0.1:
            self.arguments = dict(self._rng.sample(list(self.arguments.items()), len(self.arguments)))
        if self._rng.random() < self._style.defaults:
            sizes = [argument for argument in self.sized if self._rng.random() < 0.3]
            self.shadowed |= {argument: str(self._rng.choice(_OTHER_SIZES)) for argument in sizes}
        self.arguments = dict(sorted(self.arguments.items(), key=lambda item: item[0] in self.shadowed))

    def block(self, key: str, inner: Constructor, name: str, arguments: str) -> str:
        """Adds a module of a further class (its text is `key`), whose constructor is `inner`; returns its attribute."""
        known = self.classes.setdefault(key, name)
        attribute = self._attributes.of(("block", "block1", "block2", "stage", "body"))
        self.lines.append(f"self.{attribute} = {known}({arguments})")
        self.parameters |= {place: f"{attribute}.{path}" for place, path in inner.parameters.items()}
        self.inner_buffers |= {place: f"{attribute}.{path}" for place, path in inner.buffers.items()}
        return attribute

    def _literal_value(self, name: str, text: str) -> str:
        """The value of an argument: a literal, or a module constant, mostly with the argument's name."""
        if self._rng.random() < 0.25 or self._module is None:
            return text
        constant = name.upper() if self._style.upper else name
        if not self._module.is_free(constant) or self._rng.random() < self._style.invented / 2:
            constant = self._module.of([constant])
        self._module.reserve(constant)
        self.hyper[constant] = text
        return constant

    def held(self, node: Node, op: Op, name: str, text: str = "") -> str:
        """An attribute as an expression of `forward`: a literal, or an attribute of the module that holds it."""
        value = node.attributes[name]
        if isinstance(value, Dim):
            return self._held_size(value)
        text = text or literal(value)
        argument, key = self._argument(node, op, name, text), f"{node.id}.{name}"
        if not argument and key not in self.buffers:
            own = self._module is not None and name not in _LITERAL and self._rng.random() < self._style.own
            argument = text if own else ""
        if not argument and key not in self.buffers:
            return text
        if key not in self.buffers:
            usual = op.arguments.get(name, (name,)) if argument == text else [argument]
            self.buffers[key] = self._attribute_of(usual)
            self.lines.append(f"self.{self.buffers[key]} = {argument}")
        return f"self.{self.buffers[key]}"

    def _attribute_of(self, choices: Sequence[str]) -> str:
        """A free attribute of the module that none of PyTorch's own is called."""
        return self._attributes.of([f"{name}_" if name in _OF_MODULES else name for name in choices])

    def _held_size(self, dim: Dim) -> str:
        """A size as an expression of `forward`, over attributes of the module that hold sizes."""
        for name in names_in(dim.text):
            argument = self._of_size(name)
            if f"size.{name}" not in self.buffers:
                self.buffers[f"size.{name}"] = self._attribute_of([argument])
                self.lines.append(f"self.{self.buffers[f'size.{name}']} = {argument}")
        return _renamed(dim.text, {name: f"self.{self.buffers[f'size.{name}']}" for name in names_in(dim.text)})

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
        lifted = self._module is not None and self._rng.random() < max(self._style.lifted, 0.3)
        if lifted:
            texts = [self._outside(dim) for dim in parameter.shape]
            value = f"({', '.join(texts)}{',' * (len(texts) == 1)})"
            shape = self._names.of([argument])
            self.arguments[shape] = self._literal_value(shape, value)
        elif self._rng.random() < 0.6:
            shape = shape[1:-1].rstrip(",")
        return f"torch.{call}({shape})" + (f" * {factor}" if factor else "")

    def store_sizes(self, share: float) -> None:
        """Keeps some sizes as attributes of the module, as people do out of habit."""
        kept = [name for name in self.sized if self._rng.random() < share]
        self.lines[:0] = [f"self.{self._attribute_of([name])} = {name}" for name in kept]

    def _outside(self, dim: Dim) -> str:
        """A size as an expression over module constants."""
        return in_constants(dim, self.constants)


def _another(text: str, rng: random.Random) -> str:
    """A value like this one, for a default that does not count."""
    if text in ("True", "False"):
        return rng.choice(("True", "False"))
    if re.fullmatch(r"-?\d+", text):
        return str(rng.randrange(6))
    return text if text[0] in "([" else str(rng.choice((1.0, 0.1, 0.5, 1e-5, 2.0, 0.01)))


def in_constants(dim: Dim, constants: Mapping[str, str]) -> str:
    """A size as an expression over module constants."""
    return _renamed(dim.text, constants)


def _renamed(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"[A-Za-z_]\w*", lambda found: names[found[0]], text)


def literal(value: Any) -> str:
    """A number, word or tuple as Python text."""
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' * (len(value) == 1)})"
    return repr(value)
