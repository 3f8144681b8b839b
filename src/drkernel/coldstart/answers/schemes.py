"""The kinds of kernels: which nodes one can compute, and who writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drkernel.coldstart.answers import (
    attentions,
    convolutions,
    elementwise,
    joins,
    products,
    rows,
    scans,
    totals,
    windows,
)
from drkernel.coldstart.answers.context import Context, Host
from drkernel.coldstart.answers.draft import Draft
from drkernel.tasks.generators.graphs.nodes import Node


@dataclass(frozen=True)
class Scheme:
    """One kind of kernel."""

    fits: Callable[[Context, Sequence[Node]], bool]
    """Whether it computes these nodes, of which the last one is the output."""
    write: Callable[[Context, Host, Sequence[Node], Draft], None]


SCHEMES: dict[str, Scheme] = {
    "elementwise": Scheme(elementwise.fits, elementwise.write),
    "norms": Scheme(totals.fits_norm, totals.write_norm),
    "rows": Scheme(joins.fits, rows.write),
    "windows": Scheme(windows.fits, windows.write),
    "totals": Scheme(totals.fits, totals.write),
    "losses": Scheme(totals.fits_rows, totals.write_rows),
    "products": Scheme(products.fits, products.write),
    "convolutions": Scheme(convolutions.fits, convolutions.write),
    "attentions": Scheme(attentions.fits, attentions.write),
    "scans": Scheme(scans.fits, scans.write),
}


def scheme_of(context: Context, nodes: Sequence[Node]) -> str:
    """The scheme that fits; empty where none does."""
    return next((name for name, scheme in SCHEMES.items() if scheme.fits(context, nodes)), "")
