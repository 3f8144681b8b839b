"""The operators of graphs, one table.

To add one: write its entry in the file of its kind. `op.Op` documents the fields. Families draw from all operators of a
kind, and the tests execute every entry in all its spellings.
"""

from __future__ import annotations

from drkernel.tasks.generators.graphs.op import Op, table
from drkernel.tasks.generators.graphs.ops import (
    activations,
    arithmetic,
    binary,
    convolutions,
    library,
    masks,
    modules,
    norms,
    pairs,
    pools,
    positional,
    products,
    reductions,
    scans,
    softmax,
    views,
)

OPS: dict[str, Op] = table(
    activations.ACTIVATIONS,
    arithmetic.ARITHMETIC,
    binary.WITH_PARAMETER,
    (binary.PRELU,),
    binary.WITH_VALUE,
    softmax.SOFTMAXES,
    scans.SCANS,
    norms.NORMS,
    reductions.REDUCTIONS,
    pools.POOLS,
    convolutions.CONVOLUTIONS,
    products.PRODUCTS,
    views.VIEWS,
    positional.POSITIONAL,
    pairs.SIMILARITIES,
    pairs.LOSSES,
    pairs.ATTENTION,
    pairs.LOOKUPS,
    library.MOVES,
    library.JOINS,
    masks.MASKS,
    modules.RAW,
    modules.MODULES,
)

__all__ = ["OPS", "Op"]
