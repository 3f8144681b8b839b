"""Scans: along the last dimension in one block or with a carry, along others step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from drkernel.coldstart.answers.chain import Chain
from drkernel.coldstart.answers.context import Context, Host
from drkernel.coldstart.answers.draft import OUTPUT, Draft
from drkernel.coldstart.answers.elementwise import allocation, is_element, numbers
from drkernel.coldstart.answers.joins import SHORTEST_ROW
from drkernel.coldstart.answers.layouts import grid_of_columns, index, known, layout_of, places
from drkernel.coldstart.answers.sites import Site
from drkernel.coldstart.answers.sizes import product, short
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.ops import OPS

_NEUTRAL = {"sum": "0.0", "prod": "1.0", "max": '-float("inf")', "min": 'float("inf")', "logsumexp": '-float("inf")'}
_BLOCK = {
    "sum": "tl.cumsum(v, 0)",
    "prod": "tl.cumprod(v, 0)",
    "max": "tl.associative_scan(v, 0, larger)",
    "min": "tl.associative_scan(v, 0, smaller)",
    "logsumexp": "tl.associative_scan(v, 0, log_add)",
}
_JOIN = {
    "sum": "s + v",
    "prod": "s * v",
    "max": "tl.maximum(s, v)",
    "min": "tl.minimum(s, v)",
    "logsumexp": "log_add(s, v)",
}
_TOTAL = {"sum": "tl.sum(v, 0)", "prod": "tl.reduce(v, 0, times)"}
_CARRY = {"sum": "s = s + d", "prod": "s = s * d", "min": "s = tl.min(v, 0)"}
_CARRY |= {"max": "s = tl.max(v, 0)", "logsumexp": "s = tl.max(v, 0)"}
_HELPERS = {"max": "larger", "min": "smaller", "logsumexp": "log_add"}
LONGEST = 8192
"""Published length of a row up to which it is in one block."""


def fits(context: Context, nodes: Sequence[Node]) -> bool:
    """Whether the nodes are one scan between element-wise nodes of the same size."""
    scans = [node for node in nodes if OPS[node.op].kind == "scan"]
    if len(scans) != 1 or not all(node in scans or is_element(node) for node in nodes):
        return False
    full = numbers(context, scans[0].id)
    return all(numbers(context, node.id) == full and node.op != "positional" for node in nodes)


def write(context: Context, host: Host, nodes: Sequence[Node], draft: Draft) -> None:
    """The kernel."""
    _Scan(context, host, nodes, draft).write()
    draft.host.append(f"{OUTPUT} = {allocation(context, host, nodes[-1])}")


class _Scan:
    """Writes one kernel."""

    def __init__(self, context: Context, host: Host, nodes: Sequence[Node], draft: Draft):
        self._host, self._draft = host, draft
        place = next(place for place, node in enumerate(nodes) if OPS[node.op].kind == "scan")
        self._before, self._scan, self._behind = nodes[:place], nodes[place], nodes[place + 1 :]
        value = self._scan.inputs[0]
        self._shape = host.shape(value)
        self._layout = layout_of(self._scan, self._shape)
        self._chain = Chain(context, host, draft, nodes)
        self._fold = OPS[self._scan.op].fold
        self._count = product(self._layout.joined)
        self._n = draft.size(self._count)
        length = product(layout_of(self._scan, context.shape(value)).joined).full
        self._short, self._several = length <= LONGEST, length <= SHORTEST_ROW and bool(self._layout.kept)
        self._backwards = self._scan.op == "reverse_cumsum"
        self._exclusive = self._scan.op == "exclusive_cumsum"
        draft.helpers += [_HELPERS[self._fold] for _ in range(self._fold in _HELPERS)]

    def write(self) -> None:
        if self._layout.in_rows and self._several:
            self._short_rows()
        elif self._layout.in_rows:
            self._rows()
        else:
            self._columns()

    def _rows(self) -> None:
        """A row per program, in one block or in several with a carry."""
        draft, kept = self._draft, self._layout.kept
        draft.add(*["row = tl.program_id(0)"] * bool(kept))
        draft.grid = f"({product(kept).text},)"
        draft.blocks["BLOCK"] = f"triton.next_power_of_2({self._count.text})" if self._short else "2048"
        if self._short:
            self._block("tl.arange(0, BLOCK)", carry=False)
            return
        draft.helpers += ["times"] * (self._fold == "prod")
        draft.add(f"s = {_NEUTRAL[self._fold]}")
        with draft.block(f"for t in range(0, {self._n}, BLOCK):"):
            self._block("t + tl.arange(0, BLOCK)", carry=True)

    def _short_rows(self) -> None:
        """Several rows per program."""
        draft, rows = self._draft, product(self._layout.kept)
        number = draft.size(rows) if short(rows) else draft.number(rows.text, "R")
        draft.add("c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "j = tl.arange(0, ROWS)[:, None]")
        draft.add(f"m = (j < {self._n}) & (c < {number})", *[f"j = {self._n} - 1 - j"] * self._backwards)
        draft.blocks |= {"ROWS": f"triton.next_power_of_2({self._count.text})", "BLOCK": "32"}
        draft.grid = f"(triton.cdiv({rows.text}, 32),)"
        masks = {"i": "m", "j": f"(j >= 0) & (j < {self._n})", "c": f"c < {number}"}
        self._joined(self._site("j", "c", "", masks), carry=False)

    def _block(self, counted: str, carry: bool) -> None:
        draft = self._draft
        draft.add(f"j = {counted}", f"m = j < {self._n}", *[f"j = {self._n} - 1 - j"] * self._backwards)
        self._joined(self._site("j", "row", "", {"i": "m", "j": "m"}), carry)

    def _joined(self, site: Site, carry: bool) -> None:
        """The scan of a block, and what is around it."""
        draft, fold = self._draft, self._fold
        self._apply(self._before, site)
        self._chain.place(self._scan.inputs[0], site)
        draft.add(f"v = tl.where(m, v, {_NEUTRAL[fold]})", *["u = v"] * self._exclusive)
        draft.add(*(f"d = {_TOTAL[fold]}" for _ in range(carry and fold in _TOTAL)), f"v = {_BLOCK[fold]}")
        if carry:
            draft.add(f"v = {_JOIN[fold]}", _CARRY[fold])
        self._finish(site)

    def _columns(self) -> None:
        """A block of columns per program, step by step."""
        draft, kept = self._draft, self._layout.kept
        draft.add(f"c = tl.program_id({len(kept) > 1:d}) * BLOCK + tl.arange(0, BLOCK)")
        draft.add(*["p = tl.program_id(0)"] * (len(kept) > 1))
        draft.add(f"m = c < {draft.size(kept[-1])}")
        draft.grid = grid_of_columns(kept, 128)
        draft.blocks["BLOCK"] = "128"
        draft.add(f"s = tl.full((BLOCK,), {_NEUTRAL[self._fold]}, tl.float32)")
        with draft.block(f"for t in range({self._n}):"):
            draft.add(*[f"j = {self._n} - 1 - t"] * self._backwards)
            site = self._site("j" if self._backwards else "t", "p", "c", {"i": "m", "c": "m"})
            self._apply(self._before, site)
            self._chain.place(self._scan.inputs[0], site)
            draft.add(*["u = v"] * self._exclusive, f"s = {_JOIN[self._fold]}", "v = s")
            self._finish(site)

    def _site(self, joined: str, kept: str, last: str, masks: dict[str, str]) -> Site:
        size = self._draft.size
        texts = places(self._layout, joined, kept, last, size)
        self._draft.add(f"i = {index(self._layout, texts, size)}")
        return Site(self._shape, "i", masks, known(self._layout, "i", texts, size))

    def _finish(self, site: Site) -> None:
        self._draft.add(*["v = v - u"] * self._exclusive)
        self._chain.done(self._scan)
        self._apply(self._behind, site)
        self._draft.add("tl.store(o_ptr + i, v, mask=m)")

    def _apply(self, nodes: Sequence[Node], site: Site) -> None:
        for node in nodes:
            self._chain.node(node, replace(site, shape=self._host.shape(node.id)))
