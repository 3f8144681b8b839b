"""Operators that find elements elsewhere: look-ups and views that move elements. Their input is in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drkernel.coldstart.answers.sites import Site, offset, parts
from drkernel.coldstart.answers.sizes import product
from drkernel.tasks.generators.graphs.dims import as_dim
from drkernel.tasks.generators.graphs.nodes import Node

Leaf = Callable[[Any, Any, Any, Node, Site], None]
"""(chain, draft, host, node, site): adds the lines that load the node's elements into `v`."""


def _coordinates(draft: Any, host: Any, node: Node, site: Site) -> list[str]:
    """The place of an element in the node's output, per dimension."""
    assert len(site.shape) == len(host.shape(node.id)), f"{node.op} at {site.shape}"
    return [site.known.get(text, text) for text in parts(site.index, site.shape, draft.size)]


def _leading(draft: Any, site: Site, number: int) -> list[str]:
    """The place in the first dimensions, as one number."""
    text = f"{site.index} // {draft.size(product(site.shape[number:]))}"
    return [site.known.get(text, text)] * (number > 0)


def _joined(draft: Any, coordinates: list[str], shape: Any, leading: int) -> str:
    """The number of an element from its coordinates, the first of which may stand for several dimensions."""
    text = ""
    for place, coordinate in enumerate(coordinates):
        size = draft.size(shape[place - (leading > 0)]) if place else ""
        bare = coordinate if coordinate.isidentifier() else f"({coordinate})"
        text = f"({text}) * {size} + {bare}" if " + " in text else f"{text} * {size} + {bare}" if text else bare
    return text


def _source(host: Any, node: Node) -> tuple[str, Any]:
    return host.variables[node.inputs[0]], host.shape(node.inputs[0])


def _moved(place: Callable[[Any, Any, Node, list[str], Any], list[str]]) -> Leaf:
    """A view whose elements are at other coordinates of its input."""

    def leaf(chain: Any, draft: Any, host: Any, node: Node, site: Site) -> None:
        variable, shape = _source(host, node)
        before = _coordinates(draft, host, node, site)
        found = place(draft, host, node, list(before), shape)
        same = 0
        while same < len(found) and found[same] == before[same] and (not same or shape[same] == site.shape[same]):
            same += 1
        pointer = draft.pointer(variable)
        draft.add(f"e = {_joined(draft, [*_leading(draft, site, same), *found[same:]], shape[same:], same)}")
        draft.add(f"v = {chain.load_at(pointer, 'e', next(iter(site.masks.values()), ''))}")

    return leaf


def _transpose(draft: Any, host: Any, node: Node, at: list[str], shape: Any) -> list[str]:
    first, second = node.attributes["dim0"], node.attributes["dim1"]
    at[first], at[second] = at[second], at[first]
    return at


def _flip(draft: Any, host: Any, node: Node, at: list[str], shape: Any) -> list[str]:
    dim = node.attributes["dim"]
    at[dim] = f"{draft.size(shape[dim])} - 1 - {at[dim]}"
    return at


def _upsample(draft: Any, host: Any, node: Node, at: list[str], shape: Any) -> list[str]:
    factor = node.attributes["scale_factor"]
    return [*at[:2], *(f"{part} // {factor}" for part in at[2:])]


def _chunk(draft: Any, host: Any, node: Node, at: list[str], shape: Any) -> list[str]:
    dim, index = node.attributes["dim"], node.attributes["index"]
    if index:
        size = draft.size(host.shape(node.id)[dim])
        at[dim] += f" + {size}" if index == 1 else f" + {index} * {size}"
    return at


def _shuffle(draft: Any, host: Any, node: Node, at: list[str], shape: Any) -> list[str]:
    r = node.attributes["upscale_factor"]
    b, c, y, x = at
    return [b, f"({c}) * {r * r} + {y} % {r} * {r} + {x} % {r}", f"{y} // {r}", f"{x} // {r}"]


def _pad(chain: Any, draft: Any, host: Any, node: Node, site: Site) -> None:
    """Elements beyond the input have a value of their own."""
    variable, shape = _source(host, node)
    last = _coordinates(draft, host, node, site)[-1]
    width = draft.size(shape[-1])
    mask = next(iter(site.masks.values()), "")
    draft.add(
        f"e = {last} - {node.attributes['pad'][0]}", f"ok = {'' if not mask else mask + ' & '}(e >= 0) & (e < {width})"
    )
    row = f"{site.index} // {draft.size(site.shape[-1])}"
    load = f"tl.load({draft.pointer(variable)} + {row} * {width} + e, mask=ok, other={node.attributes['value']})"
    draft.add(f"v = {load}{'.to(tl.float32)' * draft.narrow}")


def _lookup(chain: Any, draft: Any, host: Any, node: Node, site: Site) -> None:
    """Rows of a table by index."""
    table, index = host.variables.get(node.inputs[0], ""), node.inputs[-1]
    if node.roles:
        table = host.context.attribute(node, node.roles[0])
    rows = host.shape(index)
    columns = site.shape[len(rows) :]
    place = offset(site, (*rows, *(as_dim(1) for _ in columns)), draft.size)
    draft.add(f"e = {_index(draft, host, index, place, site.mask(place))}")
    inside = f"e * {draft.size(product(columns))} + {offset(site, columns, draft.size)}"
    pointer = draft.pointer(table, "w" * bool(node.roles))
    draft.add(f"v = {chain.load_at(pointer, inside, site.mask(site.index))}")


def _index(draft: Any, host: Any, value: str, place: str, mask: str) -> str:
    """The expression that loads an index."""
    address = f"{draft.pointer(host.variables[value], 'idx')} + {place}"
    return f"tl.load({address}, mask={mask})" if mask else f"tl.load({address})"


def _gather(chain: Any, draft: Any, host: Any, node: Node, site: Site) -> None:
    """Elements of the same column by index (along the first dimension)."""
    table, index = node.inputs
    mask = site.mask(site.index)
    draft.add(f"e = {_index(draft, host, index, site.index, mask)}")
    inside = f"e * {draft.size(product(site.shape[1:]))} + {offset(site, site.shape[1:], draft.size)}"
    draft.add(f"v = {chain.load_at(draft.pointer(host.variables[table]), inside, mask)}")


LEAVES: dict[str, Leaf] = {
    "transpose": _moved(_transpose),
    "flip": _moved(_flip),
    "upsample_nearest": _moved(_upsample),
    "chunk": _moved(_chunk),
    "pixel_shuffle": _moved(_shuffle),
    "pad": _pad,
    "embedding": _lookup,
    "index_select": _lookup,
    "gather": _gather,
}
