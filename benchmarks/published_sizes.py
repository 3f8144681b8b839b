"""Tasks of our own at the sizes of KernelBench's problems, each with an honest answer and a wrong one.

The sizes are facts: element-wise operators read 4,096 x 393,216 numbers, norms 112 x 64 x 512 x 512 or rows of 65,535,
reductions 128 x 4,096 x 4,095. Nothing here is copied from KernelBench.
"""

from __future__ import annotations

import published_convolutions
import published_elementwise
import published_networks
import published_products
import published_reductions
import published_scans
from published_parts import GIB, Entry

__all__ = ["ENTRIES", "GIB", "Entry", "chosen"]

ENTRIES: tuple[Entry, ...] = (
    *published_elementwise.ENTRIES,
    *published_scans.ENTRIES,
    *published_reductions.ENTRIES,
    *published_products.ENTRIES,
    *published_convolutions.ENTRIES,
    *published_networks.ENTRIES,
)


def chosen(only: list[str]) -> list[Entry]:
    """The entries whose names start with one of `only`; all if it is empty."""
    return [entry for entry in ENTRIES if not only or entry.name.startswith(tuple(only))]
