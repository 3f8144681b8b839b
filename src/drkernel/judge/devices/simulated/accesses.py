"""How many loads, stores and products a kernel makes at full size."""

from __future__ import annotations

from drkernel.judge.boundary.op_trace import Row
from drkernel.judge.devices.simulated.programs import SHARED, grids
from drkernel.judge.devices.simulated.rescale import Scale

_LEAST_NEEDED = 0.5
"""Of products that grow as the reference's, those that a kernel does at least: a small run has too few blocks to show
that it skips those behind a causal mask."""

_LEAST_ISSUED = 0.5
"""Of the small run's instructions for each block that it loads or stores, those that a kernel has at full size at
least. Honest kernels for which it matters have 1.0 to 6.3 times as many. Of others, whose loops are longer at full size
than what follows them, some have 0.2 to 0.6."""

_LEAST_ISSUED = 0.5
"""Of the small run's instructions for each block that it loads or stores, those that a kernel has at full size at
least. A sum over what a program has gathered, of which there are fewer for each block, leaves 0.65 of them."""

_LOADED_ONCE = 1.5
"""Times the data, what programs load of them if each loads its own: parts begin and end within a sector."""


def growth_of_products(row: Row, scale: Scale) -> float:
    """How much more operations of tl.dot there are: as the reference's products grow, or as programs without data say,
    if that is more. If it is less, a steady kernel is believed, down to `_LEAST_NEEDED`; not so where they were stopped
    before their end, which moves no bytes."""
    grown, told = scale.of_products(row), row.full_flops / row.flops
    return max(told, _LEAST_NEEDED * grown if row.steady and row.full_moved else grown)


def accesses_of(
    row: Row, moved: float, smaller: float, growth: float, products: float, guessed: float, known: float | None
) -> float:
    """Loads and stores of all programs.

    Args:
        moved: distinct bytes at full size.
        smaller: how much smaller tiles of products are than at full size.
        growth: of the data.
        products: of a kernel's products; 0 without any.
        guessed, known: programs at full size, as the small grid has it, and as the dry run does; see shares_the_data.
    """
    found = row.accesses * smaller * growth_of_accesses(row, growth, products, guessed)
    if known is not None:
        fewer = row.accesses * growth_of_accesses(row, growth, products, known)
        found = min(found, max(fewer, row.full_accesses))
    return min(found, row.full_accesses) if not products and is_told(row, moved) else found


def is_told(row: Row, moved: float) -> bool:
    """Whether programs without data tell how much they access: they do as many steps as those with data, no fewer than
    those of the small run, and all do the same steps or go through the data together. Not of products: what loops of
    tl.dot reach was measured with accesses that grow as these do."""
    launched = row.full_grid * max(row.calls, row.full_calls)
    no_less = row.full_accesses * row.programs >= row.accesses * launched > 0
    return row.steady and no_less and (row.even or row.full_moved >= SHARED * moved)


def instructs_alike(row: Row) -> bool:
    """Whether programs without data issue about as many instructions for what they load and store as those of the small
    run do, or more. Masks, sizes of blocks and idle programs leave that as it is; other constants of the host do not.
    """
    return row.full_issued * row.blocks >= _LEAST_ISSUED * row.issued * row.full_blocks


def filled_share(row: Row) -> float:
    """The share of the lanes of tiles that a small task fills."""
    return min(1.0, row.flops / row.dense_flops) if row.dense_flops else 1.0


def growth_of_accesses(row: Row, growth: float, products: float, programs: float) -> float:
    """More data mean more loads and stores, unless a program's whole data lie in one block. Tiles of products that a
    small task leaves empty are full at full size."""
    if products:
        return products * filled_share(row)
    loops = any(grid.loops for grid in grids(row))
    return growth if loops else min(growth, programs * row.calls / max(row.programs, 1))


def growth_of_shared(row: Row, scale: Scale, programs: float) -> float:
    """How much more all programs load where each goes, in several blocks, through data that others go through, too.

    A program that compares its numbers with all of a row loads the longer row, and there are more such programs; the
    data themselves grow less. 0 where no program loads as much as a dimension has.
    """
    grown = 0.0
    for tensor in row.tensors:
        if tensor.stored or tensor.total - row.reused <= _LOADED_ONCE * tensor.unique:
            continue  # what is loaded twice, the same program loads twice
        for loaded in (tensor.total, tensor.total - row.reused):
            elements = loaded / max(tensor.unique, 1) * tensor.numel / max(row.programs, 1)
            if elements > row.block and elements.is_integer():
                grown = max(grown, scale.extents.get(int(elements), 0.0))
    return grown * programs * row.calls / max(row.programs, 1)
