"""Where the elements of a kernel are: their shape, the variable that counts them, and masks.

`offset` is the index arithmetic of broadcasting: where in a smaller tensor an element's partner is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from drkernel.coldstart.answers.sizes import is_one, product
from drkernel.tasks.generators.graphs.dims import Dim, Shape, as_dim


@dataclass(frozen=True)
class Site:
    """Elements of a shape, counted in contiguous order."""

    shape: Shape
    index: str
    """The variable that holds an element's number."""
    masks: Mapping[str, str] = field(default_factory=dict)
    """The mask of a load whose offset names these variables; variables that are not here are scalars. The first is
    that of whole elements."""
    known: Mapping[str, str] = field(default_factory=dict)
    """Shorter texts for terms of offsets."""

    def mask(self, offset: str) -> str:
        """The mask for an offset; empty where all of it is there."""
        named = [name for name in self.masks if re.search(rf"\b{name}\b", offset)]
        if not named:
            return ""
        return self.masks[named[0]] if len(named) == 1 else next(iter(self.masks.values()))


def offset(site: Site, other: Sequence[Dim], size: Callable[[Dim], str]) -> str:
    """Where an element's partner is in a contiguous tensor of the shape `other`, which broadcasts to the site's.

    >>> from drkernel.tasks.generators.graphs.dims import Dim
    >>> b, c, h = Dim("B", 2, 2), Dim("C", 3, 3), Dim("H", 4, 4)
    >>> offset(Site((b, c, h), "i"), (c, as_dim(1)), str), offset(Site((b, c, h), "i"), (b, as_dim(1), h), str)
    ('i // H % C', 'i // (C * H) * H + i % H')
    """
    padded = (as_dim(1),) * (len(site.shape) - len(other)) + tuple(other)
    runs: list[tuple[bool, list[Dim]]] = []
    for own, dim in zip(site.shape, padded, strict=True):
        if is_one(own):
            continue
        present = not is_one(dim)
        if runs and runs[-1][0] == present:
            runs[-1][1].append(own)
        else:
            runs.append((present, [own]))
    if not any(present for present, _ in runs):
        return "0"
    terms = []
    for place, (present, dims) in enumerate(runs):
        if present:
            inner = product([dim for _, later in runs[place + 1 :] for dim in later])
            after = product([dim for kept, later in runs[place + 1 :] for dim in later if kept])
            terms.append(_term(site, dims, inner, after, place == 0, size))
    return " + ".join(terms)


def _term(site: Site, dims: list[Dim], inner: Dim, after: Dim, first: bool, size: Callable[[Dim], str]) -> str:
    text = site.index
    if not is_one(inner):
        text += f" // {_operand(size(inner))}"
    if not first:
        text += f" % {_operand(size(product(dims)))}"
    text = site.known.get(text, text)
    return text if is_one(after) else f"{text} * {_operand(size(after))}"


def _operand(text: str) -> str:
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def terms(
    shape: Sequence[Dim], place: int, outer: str, inner: str, size: Callable[[Dim], str], index: str = "i"
) -> dict[str, str]:
    """What terms of offsets are where `outer` counts the first `place` dimensions and `inner` the others.

    >>> b, c, h = Dim("B", 2, 2), Dim("C", 3, 3), Dim("H", 4, 4)
    >>> terms((b, c, h), 2, "p", "j", str)
    {'i // (C * H)': 'p // C', 'i // H': 'p', 'i // H % C': 'p % C', 'i % H': 'j'}
    """
    found = {}
    for start in range(len(shape)):
        for stop in range(start + 1, len(shape) + 1):
            if start >= place or stop <= place:
                variable, first, last = (inner, place, len(shape)) if start >= place else (outer, 0, place)
                text = _counted(index, shape, 0, start, stop, len(shape), size)
                if text != index:
                    found[text] = _counted(variable, shape, first, start, stop, last, size)
    return found


def _counted(
    variable: str, shape: Sequence[Dim], first: int, start: int, stop: int, last: int, size: Callable[[Dim], str]
) -> str:
    """The place in dimensions `start` to `stop` of what a variable counts in dimensions `first` to `last`."""
    inner = product(shape[stop:last])
    text = variable if is_one(inner) else f"{variable} // {_operand(size(inner))}"
    return text if start == first else f"{text} % {_operand(size(product(shape[start:stop])))}"


def parts(variable: str, sizes: Sequence[Dim], size: Callable[[Dim], str]) -> list[str]:
    """The coordinates that a variable stands for, which counts elements of a shape.

    >>> parts("j", (Dim("B", 2, 2), Dim("H", 4, 4)), str)
    ['j // H', 'j % H']
    """
    found = []
    for place, dim in enumerate(sizes):
        inner = product(sizes[place + 1 :])
        text = variable if is_one(inner) else f"{variable} // {_operand(size(inner))}"
        found.append(text if place == 0 else f"{text} % {_operand(size(dim))}")
    return found
