"""Which nodes a kernel can join: those that reduce or scale the same elements, and element-wise ones around them."""

from __future__ import annotations

from collections.abc import Sequence

from drkernel.coldstart.answers.context import Context
from drkernel.coldstart.answers.elementwise import is_element, numbers
from drkernel.coldstart.answers.layouts import Layout, layout_of
from drkernel.coldstart.answers.leaves import LEAVES
from drkernel.coldstart.answers.sizes import product
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.ops import OPS

LONGEST_ROW, LONGEST_COLUMN = 16384, 128
"""Published lengths up to which a program has all its elements in one block."""
SHORTEST_ROW = 256
"""Published lengths up to which a program has several rows."""
FEWEST_PROGRAMS, MANY_ELEMENTS = 200, 2**21
"""A large tensor that would be joined by fewer programs is joined in pieces."""
PIECES = {
    "sum": ("tl.atomic_add", "0.0"),
    "max": ("tl.atomic_max", '-float("inf")'),
    "min": ("tl.atomic_min", 'float("inf")'),
}
"""How pieces are joined in memory, and what is there before, by fold."""


def is_core(node: Node) -> bool:
    """Whether the node joins elements in a way that this file knows."""
    op = OPS[node.op]
    if op.kind == "pool":
        sizes = node.attributes.get("output_size")
        return sizes is not None and set(sizes if isinstance(sizes, tuple) else (sizes,)) == {1}
    norm = op.kind == "norm" and not node.op.startswith("batch_norm")
    return norm or op.kind in ("reduction", "softmax") or node.op == "matvec"


def fits(context: Context, nodes: Sequence[Node]) -> bool:
    """Whether one kernel computes the nodes."""
    cores = [node for node in nodes if is_core(node)]
    if not cores or not all(is_core(node) or is_element(node) or node.op in LEAVES for node in nodes):
        return False
    layouts = [layout_of(core, context.shape(core.inputs[0])) for core in cores]
    if not layouts[0].joined or any(layout.key != layouts[0].key for layout in layouts):
        return False
    if few_programs(layouts[0]) and len(nodes) > 1 and not in_pieces(nodes, cores):
        return False
    full = numbers(context, cores[0].inputs[0])
    return _shapes_fit(context, nodes, cores, full) and _passes_fit(context, nodes, cores, layouts[0], full)


def few_programs(layout: Layout) -> bool:
    """Whether a large tensor would be joined by too few programs."""
    kept, joined = product(layout.kept).full, product(layout.joined).full
    programs = kept if layout.in_rows else kept // min(128, layout.kept[-1].full)
    return programs < FEWEST_PROGRAMS and kept * joined >= MANY_ELEMENTS and not one_block(layout)


def in_pieces(nodes: Sequence[Node], cores: Sequence[Node]) -> bool:
    """Whether what is left of pieces is easily joined."""
    op = OPS[cores[0].op]
    return len(cores) == 1 and nodes[-1] is cores[0] and op.kind in ("reduction", "pool") and op.fold in PIECES


def _shapes_fit(context: Context, nodes: Sequence[Node], cores: list[Node], full: tuple[int, int]) -> bool:
    """Whether all values are of full size, or what is left when elements are joined."""
    own = {node.id for node in nodes}
    reduced: dict[str, bool] = {}
    for node in nodes:
        inside = [value for value in node.inputs if value in own]
        before = [reduced[value] for value in inside]
        if node.op in LEAVES and (inside or numbers(context, node.id) != full):
            return False
        if OPS[node.op].kind == "positional" or (is_core(node) and any(before)):
            return False
        joins = is_core(node) and OPS[node.op].kind not in ("norm", "softmax")
        reduced[node.id] = joins or (bool(before) and all(before) and numbers(context, node.id) != full)
        expected = numbers(context, node.id) == full
        if expected == reduced[node.id] and full != numbers(context, nodes[-1].id):
            return False
        if not reduced[node.id] and not expected:
            return False
        if reduced[node.id] and not joins and numbers(context, node.id) != numbers(context, inside[0]):
            return False
        if any(before) and not reduced[node.id]:
            mixed = [value for value in inside if reduced[value]]
            if any(not _kept_dims(context, value, node.id) for value in mixed):
                return False
    return True


def _kept_dims(context: Context, value: str, other: str) -> bool:
    """Whether a joined value has ones where its elements were."""
    return len(context.shape(value)) == len(context.shape(other))


def _passes_fit(
    context: Context, nodes: Sequence[Node], cores: list[Node], layout: Layout, full: tuple[int, int]
) -> bool:
    """Whether values that are needed together are at hand together."""
    if one_block(layout):
        return True
    if len(cores) > 1:
        return False
    behind = nodes[list(nodes).index(cores[0]) + 1 :]
    before = {node.id for node in nodes} - {node.id for node in behind} - {cores[0].id}
    mixes = OPS[cores[0].op].kind not in ("norm", "softmax") and any(numbers(context, n.id) == full for n in behind)
    return not mixes and not any(value in before for node in behind for value in node.inputs if mixes)


def one_block(layout: Layout) -> bool:
    """Whether the joined elements of the published task fit one block."""
    return product(layout.joined).full <= (LONGEST_ROW if layout.in_rows else LONGEST_COLUMN)


def number_of_pieces(layout: Layout) -> int:
    """Into how many pieces rows or columns are cut, so that there are enough programs."""
    kept = product(layout.kept).full
    programs = kept if layout.in_rows else kept // min(128, layout.kept[-1].full)
    return max(4, 1 << (1024 // max(programs, 1)).bit_length() - 1)
