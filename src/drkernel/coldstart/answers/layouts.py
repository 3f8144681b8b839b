"""Which elements are joined: a shape as runs of dimensions that are kept, or joined into one.

[B, C, H, W] over (2, 3)       B*C kept, H*W joined              a row per program
[B, C, H, W] over 1            B kept, C joined, H*W kept        columns
[B, C, H, W] over (0, 2, 3)    B joined, C kept, H*W joined      a row in pieces
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drkernel.coldstart.answers.sites import _operand, parts
from drkernel.coldstart.answers.sizes import is_one, product
from drkernel.tasks.generators.graphs.dims import Dim, as_dim
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.ops import OPS

Size = Callable[[Dim], str]


@dataclass(frozen=True)
class Layout:
    """See the top of this file."""

    runs: tuple[tuple[bool, Dim], ...]
    """(whether it is joined, its size), from the first dimension to the last."""

    @property
    def joined(self) -> list[Dim]:
        return [dim for joined, dim in self.runs if joined]

    @property
    def kept(self) -> list[Dim]:
        return [dim for joined, dim in self.runs if not joined]

    @property
    def in_rows(self) -> bool:
        """Whether neighbours are joined; else columns are."""
        return self.runs[-1][0]

    @property
    def key(self) -> tuple:
        return tuple((joined, dim.text) for joined, dim in self.runs)


def joined_dims(node: Node, rank: int) -> tuple[int, ...]:
    """The dimensions that a node joins, in its input."""
    if node.op == "matvec":
        return (rank - 1,)
    if OPS[node.op].kind == "pool":
        return tuple(range(2, rank))
    found = node.attributes.get("dims")
    return tuple(found) if found is not None else (node.attributes["dim"],)


def layout_of(node: Node, shape: Sequence[Dim]) -> Layout:
    """The layout of a node that joins elements of this shape."""
    if node.op == "group_norm":
        groups = as_dim(node.attributes["num_groups"])
        return Layout(((False, shape[0] * groups), (True, product((shape[1] // groups, *shape[2:])))))
    dims = joined_dims(node, len(shape))
    runs: list[tuple[bool, list[Dim]]] = []
    for place, dim in enumerate(shape):
        if is_one(dim):
            continue
        if runs and runs[-1][0] == (place in dims):
            runs[-1][1].append(dim)
        else:
            runs.append((place in dims, [dim]))
    return Layout(tuple((joined, product(sizes)) for joined, sizes in runs))


def index(layout: Layout, texts: Sequence[str], size: Size) -> str:
    """The number of an element from its place in each run."""
    found = ""
    for (_, dim), text in zip(layout.runs, texts, strict=True):
        bare = text if text.isidentifier() or not found else f"({text})" if "%" not in text else text
        if not found:
            found = bare
        else:
            found = f"{found if ' + ' not in found else f'({found})'} * {_operand(size(dim))} + {bare}"
    return found


def places(layout: Layout, joined: str, kept: str, last: str, size: Size) -> list[str]:
    """The place in each run, from what counts joined elements, kept ones, and kept ones of the last run."""
    kept_runs = layout.kept[:-1] if last else layout.kept
    of_joined, of_kept = iter(parts(joined, layout.joined, size)), iter([*parts(kept, kept_runs, size), last])
    return [next(of_joined) if is_joined else next(of_kept) for is_joined, _ in layout.runs]


def grid_of_columns(kept: Sequence[Dim], columns: int) -> str:
    """Programs for blocks of columns. What is kept before these comes first: other axes end at 65,535."""
    outer, blocks = product(kept[:-1]).text, f"triton.cdiv({kept[-1].text}, {columns})"
    return f"({outer}, {blocks})" if len(kept) > 1 else f"({blocks},)"


def known(layout: Layout, variable: str, texts: Sequence[str], size: Size) -> dict[str, str]:
    """What terms of offsets are in these places: `i // N` is `row`."""
    found = {}
    for text, counted in zip(texts, parts(variable, [dim for _, dim in layout.runs], size), strict=True):
        found[counted] = text
    return found
