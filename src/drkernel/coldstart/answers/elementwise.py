"""Kernels whose elements do not depend on each other: one program per block of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from drkernel.coldstart.answers.chain import RESHAPES, Chain
from drkernel.coldstart.answers.context import Context, Host
from drkernel.coldstart.answers.draft import OUTPUT, Draft
from drkernel.coldstart.answers.leaves import LEAVES
from drkernel.coldstart.answers.sites import Site, offset, terms
from drkernel.coldstart.answers.sizes import product
from drkernel.tasks.generators.graphs.dims import count
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.ops import OPS

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
        elif not is_element(node) or (node.op in ("outer", "diagonal_matmul") and own & set(node.inputs)):
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


LEAST_PLANE = 200
"""Published elements of a plane that is worth a program of its own."""


def write(context: Context, host: Host, nodes: Sequence[Node], draft: Draft) -> None:
    """The kernel: an index, the lines of each node, a store."""
    last = nodes[-1]
    for node in nodes:
        host.shape(node.id)
    draft.host.append(f"{OUTPUT} = {allocation(context, host, last)}")
    site = start(context, host, draft, last, _in_planes(context, draft, nodes))
    sites = sites_of(context, host, draft, nodes, site)
    chain = Chain(context, host, draft, nodes)
    for node in nodes:
        chain.node(node, sites[node.id])
    draft.add("tl.store(o_ptr + i, v, mask=m)")


def start(context: Context, host: Host, draft: Draft, last: Node, planes: bool) -> Site:
    """The indices of a program's outputs: of a block of all, or of a block of one plane."""
    shape, published = host.shape(last.id), context.shape(last.id)
    if planes:
        place = min(2, len(shape) - 1)
        inner, block = product(shape[place:]), _block_of_plane(draft, count(published[place:]))
        size = draft.size(inner)
        draft.add("p = tl.program_id(0)", "j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)", f"m = j < {size}")
        draft.add(f"i = p * {size} + j")
        draft.grid = f"({product(shape[:place]).text}, triton.cdiv({inner.text}, {block}))"
        return Site(shape, "i", {"i": "m", "j": "m"}, terms(shape, place, "p", "j", draft.size))
    block = block_of(draft, count(published), count(published, small=True))
    draft.add("i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "m = i < T")
    draft.host.append(f"T = {OUTPUT}.numel()")
    draft.number("T", "T")
    draft.grid = f"(triton.cdiv(T, {block}),)"
    draft.tuned = True
    return Site(shape, "i", {"i": "m"})


def _block_of_plane(draft: Draft, elements: int) -> int:
    """A block size for a plane of so many elements."""
    block = max(128, min(draft.style.block, 1 << (elements - 1).bit_length()))
    draft.blocks["BLOCK"] = str(block)
    return block


def block_of(draft: Draft, elements: int, small: int, several: bool = False) -> int:
    """A block size for a program that has so many elements at most.

    The simulated device takes one program whose tensors have several times its block for one that loops; a block is
    chosen that does not look so at small sizes.
    """
    sizes = sorted(BLOCKS, key=lambda block: block != draft.style.block)
    sizes = [block for block in sizes if block <= max(elements, 128)]
    sizes = [block for block in sizes if small > block or (4 * small <= block and not several)] or sizes
    block = sizes[0]
    draft.blocks["BLOCK"] = str(block)
    return block


BLOCKS = (1024, 512, 2048, 256, 128)


def _in_planes(context: Context, draft: Draft, nodes: Sequence[Node]) -> bool:
    """Whether a program of one plane saves loads: those of parameters per channel."""
    shape = context.shape(nodes[-1].id)
    if len(shape) < 2 or count(shape[min(2, len(shape) - 1) :]) < LEAST_PLANE:
        return False
    if len(shape) == 2:
        return any(node.op in LEAVES or node.op in ("outer", "diagonal_matmul") for node in nodes)
    normed = any(node.op.startswith("batch_norm") for node in nodes)
    return (normed or draft.style.planes) and any(
        node.parameters or node.op in LEAVES or len(node.inputs) > 1 for node in nodes
    )


def allocation(context: Context, host: Host, node: Node, like: bool = True) -> str:
    """The expression that makes the tensor for a node's value; like: as one that has its shape, if there is one."""
    same = [value for value in host.variables_of_floats() if _alike(context, value, node.id)]
    if node.dtype != context.graph.dtype:
        source = next(iter(host.variables.values()))
        return f"torch.empty({_sizes(host, node)}, dtype=torch.{node.dtype}, device={source}.device)"
    if same and like:
        return f"torch.empty_like({host.variables[same[0]]})"
    return f"{host.float_source()}.new_empty({_sizes(host, node)})"


def _sizes(host: Host, node: Node) -> str:
    texts = [dim.text for dim in host.shape(node.id)]
    return f"({', '.join(texts)}{',' * (len(texts) == 1)})" if len(texts) != 1 else texts[0]


def _alike(context: Context, value: str, other: str) -> bool:
    return [dim.text for dim in context.shape(value)] == [dim.text for dim in context.shape(other)]
