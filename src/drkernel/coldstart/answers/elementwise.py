"""Kernels whose elements do not depend on each other: one program per block of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from drkernel.coldstart.answers.chain import RESHAPES, Chain
from drkernel.coldstart.answers.context import Context, Host
from drkernel.coldstart.answers.draft import OUTPUT, Draft
from drkernel.coldstart.answers.leaves import LEAVES
from drkernel.coldstart.answers.sites import Site, offset
from drkernel.tasks.graphs.dims import count
from drkernel.tasks.graphs.nodes import Node
from drkernel.tasks.graphs.ops import OPS

ELEMENT_KINDS = ("pointwise", "binary", "positional")
ELEMENT_OPS = (*RESHAPES, "outer", "diagonal_matmul", "batch_norm1d", "batch_norm2d", "batch_norm3d")


def is_element(node: Node) -> bool:
    """Whether an operator works element by element on values that are at hand."""
    return OPS[node.op].kind in ELEMENT_KINDS or node.op in ELEMENT_OPS


def numbers(context: Context, value: str) -> tuple[int, int]:
    """How many elements a value has, published and small."""
    shape = context.shape(value)
    return count(shape), count(shape, small=True)


def fits(context: Context, nodes: Sequence[Node]) -> bool:
    """Whether one element-wise kernel can compute the nodes, of which the last is the output."""
    own = {node.id for node in nodes}
    for node in nodes:
        if node.op in LEAVES:
            if own & set(node.inputs) or numbers(context, node.id) != numbers(context, nodes[-1].id):
                return False
        elif not is_element(node):
            return False
    return consistent(context, nodes)


def consistent(context: Context, nodes: Sequence[Node]) -> bool:
    """Whether each value of the nodes is read at one place only."""
    own = {node.id: node for node in nodes}
    sites: dict[str, tuple] = {nodes[-1].id: ("all",)}
    for node in reversed(nodes):
        if node.id not in sites:
            return False
        for value in set(node.inputs) & set(own):
            same = numbers(context, value) == numbers(context, node.id)
            if not same and node.op in RESHAPES:
                return False
            place = sites[node.id] if same else (*sites[node.id], context.shape(value))
            if sites.setdefault(value, place) != place:
                return False
    return True


def sites_of(context: Context, host: Host, draft: Draft, nodes: Sequence[Node], site: Site) -> dict[str, Site]:
    """The site of each node's elements, where `site` is that of the last one."""
    own = {node.id for node in nodes}
    found = {nodes[-1].id: site}
    for node in reversed(nodes):
        at = found[node.id]
        for value in own & set(node.inputs):
            shape = host.shape(value)
            if numbers(context, value) == numbers(context, node.id):
                found[value] = replace(at, shape=shape)
            else:
                place = offset(at, shape, draft.size)
                found[value] = replace(at, shape=shape, index=f"({place})" if "+" in place else place)
    return found


def write(context: Context, host: Host, nodes: Sequence[Node], draft: Draft, block: int = 1024) -> None:
    """The kernel: an index, the lines of each node, a store."""
    last = nodes[-1]
    site = Site(host.shape(last.id), "i", {"i": "m"})
    sites = sites_of(context, host, draft, nodes, site)
    chain = Chain(context, host, draft, nodes)
    draft.add("i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "m = i < T")
    for node in nodes:
        chain.node(node, sites[node.id])
    draft.add("tl.store(o_ptr + i, v, mask=m)")
    draft.blocks["BLOCK"] = str(block)
    draft.host += [f"{OUTPUT} = {allocation(context, host, last)}", f"T = {OUTPUT}.numel()"]
    draft.number("T", "T")
    draft.grid = f"(triton.cdiv(T, {block}),)"


def allocation(context: Context, host: Host, node: Node) -> str:
    """The expression that makes the tensor for a node's value."""
    same = [value for value in host.variables_of_floats() if _alike(context, value, node.id)]
    if node.dtype != context.graph.dtype:
        source = next(iter(host.variables.values()))
        return f"torch.empty({_sizes(host, node)}, dtype=torch.{node.dtype}, device={source}.device)"
    if same:
        return f"torch.empty_like({host.variables[same[0]]})"
    return f"{host.float_source()}.new_empty({_sizes(host, node)})"


def _sizes(host: Host, node: Node) -> str:
    texts = [dim.text for dim in host.shape(node.id)]
    return f"({', '.join(texts)}{',' * (len(texts) == 1)})" if len(texts) != 1 else texts[0]


def _alike(context: Context, value: str, other: str) -> bool:
    return [dim.text for dim in context.shape(value)] == [dim.text for dim in context.shape(other)]
