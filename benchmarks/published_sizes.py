"""Tasks of our own at the sizes of KernelBench's problems, each with an honest answer and a wrong one.

The sizes are facts: element-wise operators read 4,096 x 393,216 numbers, norms 112 x 64 x 512 x 512 or rows of 65,535,
reductions 128 x 4,096 x 4,095. Nothing here is copied from KernelBench.

    python benchmarks/published_sizes.py FOLDER

writes the tasks as files in KernelBench's layout: a set for `evaluate.py tasks.eval_source=FOLDER` that no generator
wrote.
"""

from __future__ import annotations

import sys
from pathlib import Path

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


def write(folder: Path) -> None:
    """FOLDER/level1/1_relu.py and so on."""
    for number, entry in enumerate(ENTRIES, 1):
        path = folder / f"level{entry.level}" / f"{number}_{entry.name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(entry.source, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(Path(sys.argv[1]))
